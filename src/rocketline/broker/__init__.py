"""The broker: stores messages, hands them out, and knows who produces and consumes."""

from rocketline.broker.broker import Broker
from rocketline.broker.config import BrokerConfig, load_broker_config

__all__ = ["Broker", "BrokerConfig", "load_broker_config"]
