"""The console in a real browser, on our cluster and on Apache's."""
