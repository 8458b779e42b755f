"""The messages of RocketMQ's gRPC service, made from our `.proto` files when this module is imported."""

from __future__ import annotations

from types import SimpleNamespace
from typing import Any

from rocketline.grpc.schema import Schema, proto_file
from rocketline.grpc.services import load_common

PACKAGE = "apache.rocketmq.v2"
SERVICE = f"{PACKAGE}.MessagingService"

schema = Schema()
for _name in ("definition.proto", "service.proto"):
    schema.load(_name, proto_file(__package__, _name))
load_common(schema)

pb: Any = SimpleNamespace(**schema.messages(PACKAGE))
"""The classes of all messages."""


def _enum(name: str) -> Any:
    return SimpleNamespace(**schema.enum(f"{PACKAGE}.{name}"))


Code = _enum("Code")
CODE_NAMES: dict[int, str] = {number: name for name, number in schema.enum(f"{PACKAGE}.Code").items()}
ClientType = _enum("ClientType")
MessageType = _enum("MessageType")
Permission = _enum("Permission")
FilterType = _enum("FilterType")
Language = _enum("Language")
Encoding = _enum("Encoding")
DigestType = _enum("DigestType")
AddressScheme = _enum("AddressScheme")
Resolution = _enum("TransactionResolution")
Source = _enum("TransactionSource")
