"""Torch modules as services: loaded and packed once, copied to devices, called off the event loop."""
