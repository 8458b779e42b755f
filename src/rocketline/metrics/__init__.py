"""Metrics: families of series, and their exporters (Prometheus, OTLP, a log).

Nothing here counts anything. A server makes its families when they are collected, from counters it has anyway.
"""
