"""Real servers and clients in a simulated world; a failure prints the seed that repeats it."""
