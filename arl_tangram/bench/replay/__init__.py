"""The command `bench replay`: recorded trajectories through the scheduler in virtual time."""
