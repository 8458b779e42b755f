"""The message store: commit log, consume queues and key index, in RocketMQ's own files."""
