"""Counters of a broker's traffic."""
