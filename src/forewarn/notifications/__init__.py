"""Telling people: the file that says whom, the couriers, and the ways messages go."""
