"""Ready jobs on Spark: each is a function that takes a session and says what it did; `rocketline pipeline` runs them."""
