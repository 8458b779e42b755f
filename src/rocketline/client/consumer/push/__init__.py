"""The push consumer: messages come to a function, one queue per pull loop."""
