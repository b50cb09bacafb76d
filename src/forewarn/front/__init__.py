"""The processes beside a server that answer virtual machines: lean, without its libraries."""
