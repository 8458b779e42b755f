"""Groups of brokers under faults: real processes, a proxy on every link, and a ledger of what was acknowledged."""
