"""Requests that the server makes itself."""
