"""The commands `produce` and `consume`."""
