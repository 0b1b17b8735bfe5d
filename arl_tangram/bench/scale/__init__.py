"""The bench of scale: what many nodes and trajectories ask of one scheduler, and of one for each group of nodes."""
