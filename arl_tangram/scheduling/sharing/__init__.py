"""Cores that actions share while they run: what is expected of each, and how many each has."""
