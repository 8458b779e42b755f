"""What a replica does with what only its master decides; with a master at work: tests/end_to_end/test_replicas.py."""

from __future__ import annotations

from types import SimpleNamespace
from typing import Any, cast

import pytest

from rocketline.broker.handlers.for_master import CODES, TIMEOUT_S, ForMaster
from rocketline.errors import ConnectionLost, RequestRejected
from rocketline.protocol.codes import RequestCode, ResponseCode
from rocketline.protocol.command import Command
from rocketline.transport import Channel, Reply

CHANNEL = cast(Channel, SimpleNamespace(remote="127.0.0.1:1"))


class Offsets:
    def __init__(self) -> None:
        self.committed: list[tuple[object, ...]] = []

    def commit(self, *args: object) -> None:
        self.committed.append(args)


class LostMaster:
    """One that is connected and does not answer."""

    asked = 0

    async def call(self, address: str, command: Command, timeout_s: float) -> Command:
        self.asked += 1
        assert (address, timeout_s) == ("127.0.0.1:2", TIMEOUT_S)
        raise ConnectionLost("gone")


def here(channel: Channel, request: Command) -> Reply:
    return request.reply(ResponseCode.SUCCESS, {"from": "here"})


def replica(*, elects: bool, has_master: bool, offsets: Offsets, master: Any = None) -> ForMaster:
    roles: Any = SimpleNamespace(is_coordinated=elects, has_master=has_master)
    return ForMaster(roles, lambda: "127.0.0.1:2", master, cast(Any, offsets))


async def answered(part: ForMaster, code: int) -> Any:
    ext = {"consumerGroup": "g", "topic": "t", "queueId": "0", "commitOffset": "3"}
    reply: Any = part.pass_on(dict.fromkeys(CODES, here))[code](CHANNEL, Command(code, ext))
    return reply if isinstance(reply, Command) else await reply


@pytest.mark.parametrize("has_master", [True, False], ids=["silent master", "no master"])
async def test_with_elections_nothing_is_decided_without_the_master(has_master: bool) -> None:
    offsets, master = Offsets(), LostMaster()
    part = replica(elects=True, has_master=has_master, offsets=offsets, master=master)
    for code in set(CODES) - {RequestCode.QUERY_CONSUMER_OFFSET}:
        with pytest.raises(RequestRejected) as refused:
            await answered(part, code)
        assert refused.value.code == ResponseCode.SERVICE_NOT_AVAILABLE
    assert (await answered(part, RequestCode.QUERY_CONSUMER_OFFSET)).ext == {"from": "here"}
    assert master.asked == (len(CODES) if has_master else 0)
    if not has_master:
        part.commit("client", "g", "t", 0, 5)
        assert not offsets.committed, "the consumer commits it again, where it counts"


@pytest.mark.parametrize("has_master", [True, False], ids=["silent master", "no master"])
async def test_with_fixed_roles_a_replica_serves_alone(has_master: bool) -> None:
    offsets = Offsets()
    part = replica(elects=False, has_master=has_master, offsets=offsets, master=LostMaster())
    for code in CODES:
        assert (await answered(part, code)).ext == {"from": "here"}
    part.commit("client", "g", "t", 0, 5)
    assert offsets.committed == [("client", "g", "t", 0, 5)]
    await part.close()
