"""What `forewarn demo` shows: a fleet that answers in its own ways, and a roll-out through it."""
