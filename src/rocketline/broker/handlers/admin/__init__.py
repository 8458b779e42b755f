"""Handlers of operators' requests."""
