"""Requests to brokers with access control, byte for byte as wanted, and what must become of them."""
