"""Check points and acknowledgements in a folder of Apache's broker, settled by ours; and the files it keeps beside them."""

from __future__ import annotations

import json
from collections.abc import Iterator
from pathlib import Path
from random import Random
from typing import Any

import pytest
from tests.unit.broker.test_golden_timers import Opened

from rocketline.broker.config import PopConfig, TopicConfigDefaults
from rocketline.broker.pop.ordered import OrderInfoTable
from rocketline.broker.pop.pops import PopNeeds, Pops
from rocketline.broker.pop.records import decode_ack, decode_checkpoint, new_ack, new_checkpoint
from rocketline.broker.pop.revive_log import REVIVE_GROUP
from rocketline.broker.statistics.statistics import BrokerStatistics
from rocketline.broker.tables.consumer_offsets import ConsumerOffsets
from rocketline.broker.tables.groups import Groups
from rocketline.broker.tables.json_table import JsonTable
from rocketline.broker.tables.topics import Topics, system_topics
from rocketline.protocol.bodies import (
    ConsumerOffsetTable,
    MessageRequestModeTable,
    SubscriptionGroupConfig,
    SubscriptionGroupWrapper,
    TopicConfig,
    TopicConfigSerializeWrapper,
    decode_file,
)
from rocketline.protocol.message_ids import encode_host
from rocketline.protocol.records import decode_messages
from rocketline.store.files.disk import RealDisk

CLUSTER, BROKER = "GoldenCluster", "broker-g"
REVIVE_TOPIC = f"rmq_sys_REVIVE_LOG_{CLUSTER}"
RETRY = "%RETRY%CG_pop_F_pop"

# As Apache's broker wrote them.
ORDER_INFO = b"""{
	"orderedConsumptionLevel":"QUEUE",
	"table":{
		"F_order@CG_poporder":{
			0:{
				"cm":1,
				"i":600000,
				"l":1794733937086,
				"o":[0,1],
				"popTime":1794733937083
			}
		}
	}
}"""
MODES = b"""{
	"messageRequestModeMap":{
		"F_pop":{
			"CG_pop":{
				"consumerGroup":"CG_pop",
				"mode":"POP",
				"popShareQueueNum":4,
				"topic":"F_pop"
			}
		}
	}
}"""
CHECKPOINT = (
    b'{"bm":0,"bn":"broker-g","c":"CG_pop","d":[0,1,2,3],"it":600000,"n":4,"pt":1794733937005,"q":1,'
    b'"reviveTime":1794734537005,"ro":0,"so":0,"t":"F_pop"}'
)
ACK = b'{"ao":1,"bn":"broker-g","c":"CG_pop","pt":1794733937005,"q":1,"so":0,"t":"F_pop"}'


class PopFolder(Opened):
    def __init__(self, folder: Path) -> None:
        super().__init__(folder)
        root = folder / "features" / "store" / "config"
        disk = RealDisk()

        def saved(name: str, kind: type[Any]) -> JsonTable[Any]:
            return JsonTable(disk, root / name, kind)

        self.topics = Topics(
            saved("topics.json", TopicConfigSerializeWrapper),
            system_topics(CLUSTER, BROKER, TopicConfigDefaults()),
            self.clock,
        )
        self.topics.load()
        self.topics.put([TopicConfig("F_pop", 2, 2, 6), TopicConfig(RETRY, 1, 1, 6), TopicConfig("F_order", 1, 1, 6)])
        groups = Groups(saved("subscriptionGroup.json", SubscriptionGroupWrapper), self.clock)
        groups.put(SubscriptionGroupConfig("CG_pop"), SubscriptionGroupConfig("CG_poporder"))
        self.offsets = ConsumerOffsets(saved("consumerOffset.json", ConsumerOffsetTable), self.clock)
        for queue_id in (2, 3):
            self.offsets.commit("apache", REVIVE_GROUP, REVIVE_TOPIC, queue_id, 0)
        (root / "consumerOrderInfo.json").write_bytes(ORDER_INFO)
        (root / "messageRequestMode.json").write_bytes(MODES)
        self.pops = Pops(
            PopConfig(),
            PopNeeds(
                store=self.store,
                topics=self.topics,
                groups=groups,
                offsets=self.offsets,
                timers=self.timers,
                statistics=BrokerStatistics(CLUSTER, self.clock, self.topics.is_system),
                aside=self.aside,
                clock=self.clock,
                random=Random(1),
                stored=lambda: None,
                order_file=saved("consumerOrderInfo.json", OrderInfoTable),
                mode_file=saved("messageRequestMode.json", MessageRequestModeTable),
                store_host=encode_host("127.0.0.1", 20911),
                broker_name=BROKER,
                cluster=CLUSTER,
            ),
        )
        self.pops.load(after_crash=False)

    def redelivered(self) -> list[bytes]:
        """What is on the retry topic after some turns."""
        for _ in range(5):
            self.settle()
            self.pops.reviver.turn()
            self.store.dispatch()
        found = self.store.read(RETRY, 0, 0, 32)
        return [message.body for chunk in found.chunks for message in decode_messages(chunk)]


@pytest.fixture
def folder(tmp_path: Path) -> Iterator[PopFolder]:
    opened = PopFolder(tmp_path)
    yield opened
    opened.close()


async def test_what_was_not_acknowledged_there_is_redelivered_here(folder: PopFolder) -> None:
    before = folder.redelivered()
    assert before == [b"pop6", b"pop8"]
    folder.clock.advance(605)
    after = folder.redelivered()
    # Three of the first queue; of the second one was acknowledged, and one has a longer time.
    assert len(after) == len(before) + 3 + 2
    folder.clock.advance(300)
    assert len(folder.redelivered()) == len(after) + 1
    assert len(set(folder.redelivered())) == 8


async def test_order_info_and_modes_are_taken_up(folder: PopFolder) -> None:
    info = folder.pops.ordered.get("F_order", "CG_poporder", 0)
    assert info is not None
    assert (info.offsets, info.acked, info.next_offset) == ([0, 1], 1, 1)
    assert folder.pops.ordered.blocked_ms("F_order", "CG_poporder", 0, None) > 0
    mode = folder.pops.modes.get("F_pop", "CG_pop")
    assert (mode.mode, mode.pop_share_queue_num) == ("POP", 4)


def test_records_are_written_byte_for_byte_as_apaches() -> None:
    checkpoint = new_checkpoint("CG_pop", "F_pop", 1, [0, 1, 2, 3], 1794733937005, 600_000, BROKER)
    assert checkpoint.encode() == CHECKPOINT
    assert decode_checkpoint(CHECKPOINT).offsets == [0, 1, 2, 3]
    assert new_ack(checkpoint.key, [1]).encode() == ACK
    assert decode_ack(ACK).key == checkpoint.key


def test_acknowledgements_in_the_longer_form_of_older_brokers_are_read() -> None:
    old = {
        "ackOffset": 7, "startOffset": 5, "consumerGroup": "g", "topic": "T", "queueId": 2, "popTime": 9, "brokerName": "b",
    }  # fmt: skip
    ack = decode_ack(json.dumps(old).encode())
    assert (ack.key, ack.offsets) == (("T", "g", 2, 5, 9, "b"), [7])
    batch = decode_ack(json.dumps(old | {"ackOffset": -1, "ackOffsetList": [5, 6]}).encode())
    assert batch.offsets == [5, 6]


def test_a_check_point_without_differences_is_dense() -> None:
    checkpoint = decode_checkpoint(b'{"bm":-2147483648,"bn":"b","c":"g","it":1,"n":3,"pt":1,"q":1,"so":5,"t":"T"}')
    assert checkpoint.offsets == [5, 6, 7]
    assert [checkpoint.bit_of(offset) for offset in (4, 5, 7, 8)] == [0, 1, 4, 0]
    assert checkpoint.acked == 1 << 31


def test_order_info_is_read_as_apache_writes_it() -> None:
    assert decode_file(OrderInfoTable, ORDER_INFO).table["F_order@CG_poporder"][0].pop_time == 1794733937083
