"""The console: pages for operators, on the listener of the control API."""
