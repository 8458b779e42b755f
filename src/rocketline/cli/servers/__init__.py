"""Commands that run servers: `up`, `nameserver`, `broker`."""
