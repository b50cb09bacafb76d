"""HTTP requests to a server, by the standard library: for commands and relays."""
