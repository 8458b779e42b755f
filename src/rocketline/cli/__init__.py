"""The `rocketline` command: servers, messages, operating a cluster, store tools, pipelines, a demonstration."""
