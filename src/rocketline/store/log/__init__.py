"""The commit log: records are appended here, one behind the other."""
