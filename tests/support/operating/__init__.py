"""Operators' tools compared: verbs of Apache's `mqadmin` and of ours, on our cluster and on Apache's with the same history.

`history` makes both clusters the same, `cases` says which verbs are run and what must come of it, `comparing` runs them
and decides, `page` writes the result into docs/compat.md.
"""
