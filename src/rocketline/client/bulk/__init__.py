"""Reading and writing many messages from a plain thread, without an event loop."""
