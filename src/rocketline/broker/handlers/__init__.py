"""What the broker answers, one module per family of requests.

A handler takes the parts it needs, the channel and the request, and returns what `transport.router` describes.
"""
