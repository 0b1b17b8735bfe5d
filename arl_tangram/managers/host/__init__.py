"""This machine, as every manager sees it: what may be used, cgroups, and who owns what was created."""
