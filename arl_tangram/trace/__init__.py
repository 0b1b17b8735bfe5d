"""Record what happened, read it back, and report where the time went."""
