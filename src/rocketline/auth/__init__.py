"""Access control of brokers and name servers: accounts, what they may do, and the guard that asks before every request."""
