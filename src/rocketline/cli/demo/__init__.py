"""The command `demo`: a cluster at work, and a check of every message."""
