"""Numbers for people who watch: what a family of series is, and the ways out (Prometheus, OTLP, a log).

Nothing here counts anything. A server adds its numbers up when it is asked for them, from counters it has anyway.
"""
