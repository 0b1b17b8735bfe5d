"""Decides which actions start and with how many units: pure, synchronous, time is an argument."""
