"""Apply allocations to the world: cores of this machine, quotas, threads."""
