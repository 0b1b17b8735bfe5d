"""Inference servers whose memory can be taken and given back: awake, draining, sleeping, asleep, waking."""
