"""Scheduled Events, self-hosted."""

__version__ = "0.1.0"
