"""Ready-made Spark jobs: functions that take a session and return an `Outcome`; `rocketline pipeline` runs them."""
