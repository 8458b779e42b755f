"""The pull consumer: messages are read when the user asks."""
