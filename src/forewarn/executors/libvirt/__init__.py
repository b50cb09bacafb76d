"""Impacts on guests of libvirt, each carried out by a process of its own, its steward."""
