"""Flushing a store: background threads, flushers, checkpoint and progress file."""
