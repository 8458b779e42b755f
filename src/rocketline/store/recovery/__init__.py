"""Making a store whole when it is opened."""
