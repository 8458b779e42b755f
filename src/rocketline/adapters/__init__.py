"""rocketline inside other frameworks: FastStream, Celery (by Kombu) and OpenTelemetry, each an extra of its own.

Each module here is a user of the clients like any other: nothing of rocketline imports it, and it imports no other adapter.
"""
