"""Devices that services are restored to: their memory, and the books on who has which bytes of it."""
