"""Handlers of requests, one module per family.

A group of handlers is a class that holds the parts it needs and declares its request codes in `routes`. A handler takes the
channel and the request, and returns what `transport.router` describes.
"""
