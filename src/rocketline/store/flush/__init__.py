"""Bringing a store to the disk: background threads, flushers, checkpoint and progress."""
