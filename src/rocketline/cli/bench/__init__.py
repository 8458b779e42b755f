"""`rocketline bench`: how fast a cluster is, measured with the public clients."""
