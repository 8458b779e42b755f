"""The harness that kills brokers: real processes, a ledger of what they acknowledged, a checker that reads it all back."""
