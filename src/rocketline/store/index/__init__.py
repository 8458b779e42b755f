"""The key index: messages found by unique id, key or tag."""
