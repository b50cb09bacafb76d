"""The relay, which answers virtual machines for a server: lean, without its libraries."""
