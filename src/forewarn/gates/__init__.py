"""The gates between two steps: programs and addresses that an operator has named in a file."""
