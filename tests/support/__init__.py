"""What tests and benchmarks share: Java tools, Apache's servers, a driver for Apache's Java client."""
