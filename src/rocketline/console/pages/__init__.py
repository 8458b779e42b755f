"""One module per page: what it asks, and the structs that page and API have in common."""

from __future__ import annotations

NAVIGATION: tuple[tuple[str, tuple[tuple[str, str], ...]], ...] = (
    ("cluster", (("overview", "/"), ("brokers", "/brokers"), ("topics", "/topics"), ("groups", "/groups"))),
    ("messages", (("search", "/messages"), ("dead_letters", "/dead-letters"), ("traces", "/traces"), ("delayed", "/delayed"),
                  ("transactions", "/transactions"))),
    ("operate", (("producers", "/producers"), ("charts", "/charts"), ("doctor", "/doctor"), ("access", "/access"),
                 ("audit", "/audit"))),
    ("files", (("store", "/store"), ("jobs", "/jobs"))),
)  # fmt: skip
"""Sections of the menu; each item is the key of its text and its path."""
