"""Settings of a broker: Apache's files load as they are, what is not known is named, what is wrong is refused by its key."""

from __future__ import annotations

from pathlib import Path

import pytest
from tests.support.replicas import WANTING_REPLICAS

from rocketline.broker.config import BrokerConfig, BrokerRole, load_broker_config, parse_delay_levels
from rocketline.errors import ConfigError
from rocketline.settings import describe, ignored_keys, load
from rocketline.store.config import FlushDiskType

# conf/broker.conf of Apache RocketMQ 5.4.0, without its licence text.
APACHE = """\
# Licensed to the Apache Software Foundation (ASF) under one or more

brokerClusterName = DefaultCluster
brokerName = broker-a
brokerId = 0
deleteWhen = 04
fileReservedTime = 48
brokerRole = ASYNC_MASTER
flushDiskType = ASYNC_FLUSH
"""

OPERATORS = """\
brokerClusterName=shop\r
brokerName: broker-7\r
! another comment\r
brokerId=1\r
listenPort=20911\r
bindAddress=0.0.0.0\r
brokerIP1=192.0.2.7\r
namesrvAddr=10.0.0.1:9876; 10.0.0.2:9876\r
storePathRootDir=/srv/rocket\\\\mq\r
storePathCommitLog=/srv/log\r
flushDiskType=SYNC_FLUSH\r
syncFlushTimeout=700\r
mappedFileSizeCommitLog=1048576\r
maxMessageSize=65536\r
autoCreateTopicEnable=false\r
autoCreateSubscriptionGroup=FALSE\r
brokerPermission=4\r
defaultTopicQueueNums=16\r
messageDelayLevel=1s 2s \\\r
  3m\r
longPollingEnable=false\r
registerNameServerPeriod=5000\r
sendMessageThreadPoolNums=64\r
"""


def write(folder: Path, text: str) -> Path:
    path = folder / "broker.conf"
    path.write_bytes(text.encode())
    return path


def test_apaches_own_file_loads_and_what_means_nothing_here_is_named(tmp_path: Path) -> None:
    config, unknown = load_broker_config(write(tmp_path, APACHE))
    assert (config.cluster, config.name, config.broker_id) == ("DefaultCluster", "broker-a", 0)
    assert config.store.flush.disk_type is FlushDiskType.ASYNC_FLUSH
    assert (config.store.retention.reserved_hours, config.store.retention.delete_hours) == (48, {4})
    assert (config.replication.role, unknown) == (BrokerRole.ASYNC_MASTER, [])
    config.refuse_contradictions()


def test_a_file_of_an_operator_sets_what_it_says(tmp_path: Path) -> None:
    config, unknown = load_broker_config(write(tmp_path, OPERATORS))
    assert (config.cluster, config.name, config.broker_id, config.port) == ("shop", "broker-7", 1, 20911)
    assert (config.bind_host, config.advertised_host) == ("0.0.0.0", "192.0.2.7")
    assert config.registration.namesrv == "10.0.0.1:9876; 10.0.0.2:9876"
    assert config.registration.interval_ms == 5000
    assert config.store_root == "/srv/rocket\\mq"
    assert config.store.flush.is_sync
    assert config.store.flush.sync_timeout_ms == 700
    assert (config.store.log_segment_bytes, config.store.max_message_bytes) == (1048576, 65536)
    assert (config.topics.auto_create, config.topics.queue_count) == (False, 16)
    assert (config.groups.auto_create, config.permission, config.long_polling) == (False, 4, False)
    assert parse_delay_levels(config.delay_levels) == (1000, 2000, 180_000)
    assert unknown == ["storePathCommitLog"], "sendMessageThreadPoolNums is known to have no effect"


def test_what_is_not_said_is_apaches_default_and_loopback() -> None:
    config = BrokerConfig()
    assert (config.port, config.bind_host, config.permission) == (10911, "127.0.0.1", 6)
    assert (config.topics.auto_create, config.topics.queue_count) == (True, 8)
    assert config.store.log_segment_bytes == 1 << 30
    assert config.store.max_message_bytes == 4 << 20
    assert len(parse_delay_levels(config.delay_levels)) == 18


def test_overrides_win_over_the_file(tmp_path: Path) -> None:
    config, unknown = load_broker_config(write(tmp_path, APACHE), {"brokerName": "other", "mystery": "1"})
    assert config.name == "other"
    assert "mystery" in unknown


@pytest.mark.parametrize(
    ("line", "words"),
    [
        ("listenPort=many", ["broker.conf: listenPort='many'", "int"]),
        ("listenPort=", ["listenPort=''"]),
        ("listenPort=70000", ["listenPort=70000"]),
        ("listenPort=-1", ["listenPort=-1"]),
        ("brokerId=-1", ["brokerId=-1"]),
        ("brokerRole=MASTER", ["brokerRole='MASTER'"]),
        ("brokerPermission=8", ["brokerPermission=8"]),
        ("traceOn=yes", ["traceOn='yes'", "bool"]),
        ("flushDiskType=SOMETIMES", ["flushDiskType='SOMETIMES'"]),
        ("mappedFileSizeCommitLog=1", ["mappedFileSizeCommitLog=1"]),
        ("maxMessageSize=0", ["maxMessageSize=0"]),
        ("messageDelayLevel=1s 2x", ["messageDelayLevel='1s 2x'"]),
        ("messageDelayLevel=", ["messageDelayLevel"]),
        ("messageDelayLevel=s", ["messageDelayLevel"]),
        ("messageDelayLevel=-5s", ["messageDelayLevel='-5s'"]),
        ("registerNameServerPeriod=0", ["registerNameServerPeriod=0"]),
        ("registerBrokerTimeoutMills=-1", ["registerBrokerTimeoutMills=-1"]),
        ("flushConsumerOffsetInterval=0", ["flushConsumerOffsetInterval=0"]),
        ("flushDelayOffsetInterval=0", ["flushDelayOffsetInterval=0"]),
        ("channelExpiredTimeout=0", ["channelExpiredTimeout=0"]),
        ("defaultTopicQueueNums=0", ["defaultTopicQueueNums=0"]),
        ("brokerName=../../x", ["brokerName='../../x'"]),
        ("brokerClusterName=a\x07", ["brokerClusterName="]),
        ("brokerName=", ["brokerName=''"]),
    ],
)
def test_a_wrong_value_is_refused_by_its_key(tmp_path: Path, line: str, words: list[str]) -> None:
    with pytest.raises(ConfigError) as caught:
        load_broker_config(write(tmp_path, APACHE + line + "\n"))
    assert all(word in str(caught.value) for word in words), caught.value


@pytest.mark.parametrize(("settings", "words"), WANTING_REPLICAS)
def test_contradicting_roles_load_but_are_refused_for_a_start(settings: dict[str, str], words: list[str]) -> None:
    """It loads, because a flag may still say otherwise than the file."""
    config, unknown = load(BrokerConfig, settings)
    assert unknown == []
    with pytest.raises(ConfigError) as caught:
        config.refuse_contradictions()
    assert all(word in str(caught.value) for word in words), caught.value


def test_a_file_that_cannot_be_read_is_named(tmp_path: Path) -> None:
    for path in (tmp_path / "missing.conf", tmp_path):
        with pytest.raises(ConfigError, match=str(path)):
            load_broker_config(path)
    latin = tmp_path / "latin.conf"
    latin.write_bytes(b"brokerName=caf\xe9\n")
    with pytest.raises(ConfigError, match=r"latin\.conf"):
        load_broker_config(latin)


@pytest.mark.parametrize(
    ("text", "levels"), [("1s", (1000,)), (" 5m   1h ", (300_000, 3_600_000)), ("1d", (86_400_000,)), ("0s", (0,))]
)
def test_delay_levels(text: str, levels: tuple[int, ...]) -> None:
    assert parse_delay_levels(text) == levels


def test_every_setting_says_what_it_is_for_and_no_key_is_used_twice() -> None:
    settings = list(describe(BrokerConfig))
    keys = [*(item.key for item in settings if item.key), *ignored_keys(BrokerConfig)]
    assert len(keys) == len(set(keys))
    assert all(item.doc.endswith(".") for item in settings)


def test_filter_bitmaps_are_off_by_default() -> None:
    config = BrokerConfig()
    assert not config.filters.bitmaps
    assert not config.store.ext.enabled
