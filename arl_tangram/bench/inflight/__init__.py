"""The command `bench inflight`: what many calls in flight cost in memory, and in time of the event loop."""
