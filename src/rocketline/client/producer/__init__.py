"""Sending messages; `rocketline.client` has the names for users."""
