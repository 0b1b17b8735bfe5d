"""Which devices this machine has, and which of them a pool gets."""
