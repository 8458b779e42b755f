"""A pull consumer hands messages back, and reads its group's retry topic itself."""

from __future__ import annotations

from tests.support.patience import PATIENCE_S

from rocketline.client import ConsumeFrom, Producer, PullConsumer
from rocketline.message import Message, MessageQueue
from rocketline.testing import LocalCluster


async def test_a_message_that_was_handed_back_comes_on_the_retry_topic_or_ends_with_the_dead_letters() -> None:
    async with LocalCluster(config={"messageDelayLevel": "0s 0s 0s 0s"}) as cluster:
        async with Producer(cluster.namesrv, group="writers") as producer:
            queue = (await producer.send(Message("orders", b"one", keys=["k"]))).queue
        async with PullConsumer(cluster.namesrv, group="readers", from_where=ConsumeFrom.FIRST) as consumer:
            consumer.assign([queue])
            (first,) = await consumer.poll(timeout=PATIENCE_S)
            await consumer.send_back(first)
            retry = MessageQueue("%RETRY%readers", queue.broker_name, 0)
            consumer.assign([retry])
            (again,) = await consumer.poll(timeout=PATIENCE_S)
            assert (again.body, again.keys, again.reconsume_times) == (b"one", ("k",), 1)
            await consumer.send_back(again, delay_level=-1)
            consumer.assign([MessageQueue("%DLQ%readers", queue.broker_name, 0)])
            (dead,) = await consumer.poll(timeout=PATIENCE_S)
            assert (dead.body, dead.reconsume_times) == (b"one", 2)
