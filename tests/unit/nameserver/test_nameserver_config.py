"""A name server's settings: from a file, in their bounds, and changed while it runs."""

from __future__ import annotations

from dataclasses import replace

import pytest

from rocketline.errors import ConfigError
from rocketline.nameserver.config import RUNTIME_KEYS, NameServerConfig, with_changes
from rocketline.settings import as_properties, load, parse_properties

CONFIG = NameServerConfig(kv_config_path="/data/kv config.json")


def test_an_apache_file_loads_and_unknown_keys_are_named():
    text = "# name server\nlistenPort=9988\nbindAddress = 127.0.0.1\norderMessageEnable=TRUE\nuseEpollNativeSelector=true\n"
    config, unknown = load(NameServerConfig, parse_properties(text))
    assert (config.port, config.host, config.order_message_enable) == (9988, "127.0.0.1", True)
    assert unknown == ["useEpollNativeSelector"]


@pytest.mark.parametrize(
    ("setting", "lowest", "highest", "key"),
    [
        ("port", 0, 65535, "listenPort"),
        ("scan_interval_ms", 100, 600_000, "scanNotActiveBrokerInterval"),
        ("wait_seconds_for_service", 0, 3600, "waitSecondsForService"),
        ("max_idle_s", 1, 86_400, "serverChannelMaxIdleTimeSeconds"),
        ("max_connections", 1, 1_000_000, "rocketline.maxConnections"),
    ],
)
def test_values_out_of_bounds_are_refused_by_name(setting: str, lowest: int, highest: int, key: str):
    for value in (lowest, highest):
        assert getattr(replace(CONFIG, **{setting: value}), setting) == value
    for value in (lowest - 1, highest + 1):
        with pytest.raises(ConfigError, match=f"{key}={value}: a value from {lowest} to {highest} is expected"):
            replace(CONFIG, **{setting: value})


def test_defaults_are_rocketmqs() -> None:
    config = NameServerConfig()
    assert (config.port, config.scan_interval_ms, config.max_idle_s) == (9876, 5000, 120)
    assert (config.need_wait_for_service, config.wait_seconds_for_service) == (False, 45)
    assert (config.order_message_enable, config.return_order_topic_config_to_broker) == (False, True)
    assert (config.support_acting_master, config.notify_min_broker_id_changed) == (False, False)
    assert (config.delete_topic_with_broker_registration, config.enable_topic_list) == (False, True)
    assert config.enable_all_topic_list


def test_the_properties_text_reads_back_as_the_same_settings():
    config = replace(CONFIG, support_acting_master=True, port=1234)
    text = as_properties(config)
    assert "supportActingMaster=true\n" in text
    assert text.splitlines() == sorted(text.splitlines())
    again, unknown = load(NameServerConfig, parse_properties(text))
    assert (again, unknown) == (config, [])


def test_changes_leave_the_other_settings_alone():
    config = replace(CONFIG, enable_topic_list=False)
    changed = with_changes(config, "orderMessageEnable=true\nscanNotActiveBrokerInterval=2500\n")
    assert changed == replace(config, order_message_enable=True, scan_interval_ms=2500)
    assert with_changes(config, "") == config


@pytest.mark.parametrize(
    ("text", "reason"),
    [
        ("kvConfigPath=/etc/passwd", "'kvConfigPath' cannot be changed"),
        ("configStorePath=/etc/passwd", "'configStorePath' cannot be changed"),
        ("rocketmqHome=/", "'rocketmqHome' cannot be changed"),
        ("configBlackList=x", "'configBlackList' cannot be changed"),
        ("listenPort=1", "'listenPort' cannot be changed"),
        ("bindAddress=0.0.0.0", "'bindAddress' cannot be changed"),
        ("authenticationEnabled=false", "'authenticationEnabled' cannot be changed"),
        ("max_connections=1", "'max_connections' cannot be changed"),
        ("nonsense", "'nonsense' cannot be changed"),
        ("orderMessageEnable=true\nkvConfigPath=/x", "'kvConfigPath' cannot be changed"),
        ("orderMessageEnable=maybe", "orderMessageEnable='maybe' is not a valid bool"),
        ("scanNotActiveBrokerInterval=soon", "scanNotActiveBrokerInterval='soon' is not a valid int"),
        ("scanNotActiveBrokerInterval=1", "scanNotActiveBrokerInterval=1: a value from 100"),
    ],
)
def test_anything_else_is_refused_with_the_reason(text: str, reason: str):
    with pytest.raises(ConfigError, match=reason):
        with_changes(CONFIG, text)


def test_switches_and_intervals_may_change_at_runtime():
    keys = parse_properties(as_properties(CONFIG)).keys()
    assert keys >= RUNTIME_KEYS
    fixed = {
        "bindAddress", "listenPort", "kvConfigPath", "serverChannelMaxIdleTimeSeconds", "rocketline.slowRequestMs",
        "aclEnable", "rocketline.insecure", "rocketline.adminFrom", "rocketline.initUserFile",
        "rocketline.maxConnections", "rocketline.maxConnectionsPerAddress", "rocketline.proxyProtocolFrom",
    }  # fmt: skip
    assert {key for key in keys - RUNTIME_KEYS if "etric" not in key and "tls." not in key} == fixed


def test_no_path_and_no_address_may_change_at_runtime():
    assert not [
        key for key in RUNTIME_KEYS if "path" in key.lower() or "address" in key.lower() or "port" in key.lower()[-4:]
    ]


def test_a_huge_unknown_key_is_not_repeated_in_the_refusal() -> None:
    with pytest.raises(ConfigError) as refusal:
        with_changes(NameServerConfig(), f"{'k' * 1_000_000}=1")
    assert len(str(refusal.value)) < 1000
