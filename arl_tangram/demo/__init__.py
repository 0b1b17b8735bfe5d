"""The command `demo`: coding rollouts in sandboxes, with cores reserved per trajectory and scheduled per action."""
