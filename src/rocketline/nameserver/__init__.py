"""The name server: which brokers are alive, and which topics they hold."""

from rocketline.nameserver.config import NameServerConfig
from rocketline.nameserver.kv_config import KvConfig
from rocketline.nameserver.routes import RouteTable
from rocketline.nameserver.server import NameServer

__all__ = ["KvConfig", "NameServer", "NameServerConfig", "RouteTable"]
