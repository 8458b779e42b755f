"""Operating a cluster, Apache's or ours: requests of tools to name servers and brokers.

async with Admin("127.0.0.1:9876") as admin:
    for broker in await admin.brokers():
        print(broker.name, (await broker.runtime_info())["putTps"])
"""

from rocketline.admin.cluster import Admin
from rocketline.admin.remote import AdminBroker, AdminNameServer

__all__ = ["Admin", "AdminBroker", "AdminNameServer"]
