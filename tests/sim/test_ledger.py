"""The checks of the simulated day object to what they are there for."""

from __future__ import annotations

from tests.sim.ledger import GroupLedger, OrderJudge, Sends, Sent
from tests.sim.operator import Operator

from rocketline.client.remote_broker import RemoteBroker
from rocketline.message import ConsumerOffset, LogOffset, MessageQueue, MessageView, QueueOffset
from rocketline.testing.sim import SimWorld, run_world
from rocketline.transport import RemotingClient

QUEUE = MessageQueue("orders", "broker-a", 0)


def message(name: str, offset: int) -> MessageView:
    return MessageView(
        "orders", name.encode(), {}, 0, QueueOffset(offset), LogOffset(0), 0, "", 0, "", broker_name="broker-a"
    )


def sends(*names: str) -> Sends:
    ledger = Sends()
    for offset, name in enumerate(names):
        ledger.begin(name)
        ledger.acknowledged(Sent(name, "shop", offset, QUEUE, offset))
    return ledger


def test_answers_out_of_order_are_objected_to() -> None:
    ledger = sends("a", "b")
    assert not ledger.objections
    ledger.acknowledged(Sent("c", "shop", 2, QUEUE, 1))
    assert ledger.objections[0].startswith("I4: c ")


def test_what_was_sent_without_an_answer_is_kept_apart() -> None:
    ledger = sends("a")
    ledger.begin("b")
    assert (list(ledger.acked), ledger.unsure) == (["a"], {"b"})


def test_content_that_changes_is_objected_to() -> None:
    ledger = GroupLedger("g")
    ledger.begins(message("a", 0))
    ledger.begins(message("a", 0))
    assert not ledger.objections
    ledger.begins(message("b", 0))
    assert ledger.objections[0].startswith("I3: ")


def test_missing_is_what_was_neither_done_nor_dead_nor_passed_over() -> None:
    ledger = GroupLedger("g")
    ledger.finished("a")
    ledger.finished("a")
    ledger.excuse(["a", "b"])
    assert ledger.missing(sends("a", "b", "c", "d"), {"c"}) == ["d"]
    assert (ledger.again, ledger.excused) == (1, {"b"})


def test_a_gap_or_two_calls_at_once_are_objected_to() -> None:
    judge = OrderJudge()
    judge.begins(1.0, "m1#1", message("a", 0))
    judge.begins(1.5, "m2#1", message("a", 0))
    judge.ends("m2#1", message("a", 0), done=True)
    judge.begins(2.0, "m2#1", message("c", 2))
    assert ["runs at m1#1" in judge.objections[0], "before 1 was done" in judge.objections[1]] == [True, True]


def test_the_dead_and_the_minute_after_a_restart_are_forgiven() -> None:
    judge = OrderJudge(lenient_until={"broker-a": 10.0})
    judge.begins(1.0, "m1#1", message("a", 0))
    judge.begins(2.0, "m2#1", message("a", 0))
    judge.forgive("m2#1")
    judge.begins(20.0, "m3#1", message("a", 0))
    assert (judge.objections, judge.overlaps) == ([], 1)


def test_an_offset_past_the_end_is_seen() -> None:
    async def scenario(world: SimWorld) -> list[list[str]]:
        await world.start_name_server("name-1")
        await world.start_broker("broker-a")
        operator = Operator(world, Sends(), 2)
        await operator.create_topic("broker-a")
        seen = [await operator.offsets_past_the_end("broker-a", ["TOOLS_CONSUMER"])]

        async def commit() -> None:
            async with RemotingClient() as client:
                remote = RemoteBroker(client, world.broker_address("broker-a"))
                await remote.commit_offset("TOOLS_CONSUMER", QUEUE, ConsumerOffset(5), oneway=False)

        await world.inside(world.new_process("somebody"), commit())
        return [*seen, await operator.offsets_past_the_end("broker-a", ["TOOLS_CONSUMER"])]

    before, after = run_world(scenario)
    assert before == []
    assert after == ["I6: TOOLS_CONSUMER is at 5 of orders@broker-a:0, which ends at 0"]
