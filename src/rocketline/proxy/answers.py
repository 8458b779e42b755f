"""What brokers are told on behalf of a client: the result of a message it was given, and what is known of it.

The bodies are those of our own clients, which are loaded when an operator first asks.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from rocketline.protocol.bodies import encode_body
from rocketline.protocol.versions import UNKNOWN, version_name
from rocketline.proxy.proto import CODE_NAMES, ClientType, Code

if TYPE_CHECKING:
    from rocketline.proxy.clients import Client

_REMARK = "from gRPC client"
_MAX_WHY = 200
"""Characters of what a client says."""


def consume_result(status: Any) -> bytes:
    """The answer to 309."""
    from rocketline.client.consumer_info import ConsumeDirectlyResult

    if status.code == Code.OK:
        return encode_body(ConsumeDirectlyResult("CR_SUCCESS", remark=_REMARK))
    result = "CR_LATER" if status.code == Code.FAILED_TO_CONSUME_MESSAGE else "CR_THROW_EXCEPTION"
    why = f"{CODE_NAMES.get(status.code, status.code)} {status.message[:_MAX_WHY]}".rstrip()
    return encode_body(ConsumeDirectlyResult(result, remark=f"{_REMARK}: {why}"))


def running_info(client: Client, stack: str | None) -> bytes:
    """The answer to 307."""
    from rocketline.client.consumer_info import ConsumerRunningInfo

    is_push = client.settings.client_type == ClientType.PUSH_CONSUMER
    properties = {
        "PROP_CONSUME_TYPE": "CONSUME_PASSIVELY" if is_push else "CONSUME_ACTIVELY",
        "PROP_CLIENT_VERSION": client.release if client.version == UNKNOWN else version_name(client.version).upper(),
        "PROP_CONSUMEORDERLY": str(client.settings.subscription.fifo).lower(),
    }
    return encode_body(ConsumerRunningInfo(properties, client.subscriptions, jstack=stack))
