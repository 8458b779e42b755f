"""What all consumers of a group share: subscriptions, assignment of queues, progress, statistics."""
