"""The commands `produce` and `consume`, and messages as text."""
