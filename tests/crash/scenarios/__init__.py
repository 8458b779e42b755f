"""The scenarios: each runs from a seed in a folder of its own and returns an Outcome."""
