"""A broker's numbers under the names of RocketMQ 5: added up when somebody asks, from counters that are there anyway."""
