"""The agent inside a virtual machine: runs hooks, approves maintenance, puts things back.

It needs `forewarn.client`, `forewarn.protocol` and the standard library, on Linux and Windows.
"""
