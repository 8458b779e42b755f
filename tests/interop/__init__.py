"""A package, so that Apache's brokers and our shared cluster end with its last test in a process (scope "package")."""
