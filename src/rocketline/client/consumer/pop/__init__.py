"""The pop consumer: brokers share messages out one by one."""
