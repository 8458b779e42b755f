"""Opening a store: locking, checking and recovering its files."""
