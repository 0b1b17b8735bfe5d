"""Servers that can only be started and stopped: a start is the restore, the end is the eviction."""
