"""Frozen values: what is declared, asked, granted and reported; and the protocols of what a body uses."""
