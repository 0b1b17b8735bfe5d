"""The bench `bench resize`: what becomes of running programs whose cores change, and what the changes cost."""
