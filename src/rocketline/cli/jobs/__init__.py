"""The commands `store` and `pipeline`."""
