"""A web console for a cluster, Apache's or ours: pages and a JSON API over `rocketline.admin`.

It is a process of its own. It reads as an operator's tool does, consumes nothing, and can stop at any time.
"""
