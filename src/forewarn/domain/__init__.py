"""Every rule of forewarn, pure: no I/O, no clock, no randomness."""
