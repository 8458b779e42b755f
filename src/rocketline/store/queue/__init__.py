"""Consume queues, and the dispatcher that keeps them and the key index in step with the log."""
