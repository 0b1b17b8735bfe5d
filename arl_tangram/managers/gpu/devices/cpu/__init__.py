"""Devices made of memory of this machine."""
