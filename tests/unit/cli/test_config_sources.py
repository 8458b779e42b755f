"""Flags over environment over file over defaults, and errors that name the source."""

from __future__ import annotations

from pathlib import Path

import pytest

from rocketline.broker.config import BrokerConfig
from rocketline.cli.servers.config_sources import environment_values, merged_values, variable_of
from rocketline.cli.servers.flags import given_settings
from rocketline.errors import ConfigError
from rocketline.nameserver import NameServerConfig
from rocketline.proxy.config import ProxyConfig
from rocketline.settings import describe, load
from rocketline.system.sockets import is_loopback


@pytest.fixture
def file(tmp_path: Path) -> Path:
    path = tmp_path / "broker.conf"
    path.write_text("brokerName=file\nbrokerClusterName=file\nlistenPort=1\nnamesrvAddr=file:1\n")
    return path


def test_each_source_wins_over_the_next(file: Path) -> None:
    environ = {"ROCKETLINE_BROKER_CLUSTER_NAME": "environment", "ROCKETLINE_LISTEN_PORT": "2"}
    config, _ = load(BrokerConfig, merged_values(BrokerConfig, file, environ, {"listenPort": "3"}))
    assert (config.name, config.cluster, config.port, config.region) == ("file", "environment", 3, "DefaultRegion")


def test_rocketmqs_own_variable_for_name_servers_counts(file: Path) -> None:
    environ = {"NAMESRV_ADDR": "10.0.0.1:9876"}
    assert merged_values(BrokerConfig, file, environ, {})["namesrvAddr"] == "10.0.0.1:9876"
    environ["ROCKETLINE_NAMESRV_ADDR"] = "10.0.0.2:9876"
    assert merged_values(BrokerConfig, file, environ, {})["namesrvAddr"] == "10.0.0.2:9876"
    assert "namesrvAddr" not in environment_values(NameServerConfig, environ)


def test_no_two_keys_share_a_variable() -> None:
    keys = [item.key for item in describe(BrokerConfig) if item.key]
    assert len({variable_of(key) for key in keys}) == len(keys)


def test_unknown_keys_of_a_file_are_warned_about_together_and_left_out(
    file: Path, caplog: pytest.LogCaptureFixture
) -> None:
    file.write_text("brokerName=file\nzebra=1\napple=2\n")
    assert merged_values(BrokerConfig, file, {}, {}) == {"brokerName": "file"}
    (record,) = caplog.records
    assert "apple, zebra" in record.getMessage()


def test_keys_without_an_effect_are_accepted_and_the_warning_says_why(
    file: Path, caplog: pytest.LogCaptureFixture
) -> None:
    file.write_text("brokerName=file\nhaMasterAddress=10.0.0.1:10912\n")
    flags = given_settings(BrokerConfig, ["bitMapLengthConsumeQueueExt=64"])
    assert merged_values(BrokerConfig, file, {}, flags) == {"brokerName": "file"}
    of_file, of_flag = (record.getMessage() for record in caplog.records)
    assert of_file.startswith(f"{file}: haMasterAddress has no effect: ")
    assert of_flag.startswith("flags: bitMapLengthConsumeQueueExt has no effect: ")
    assert "maxErrorRateOfBloomFilter" in of_flag


@pytest.mark.parametrize(
    ("text", "environ", "flags", "named"),
    [
        ("listenPort=x", {}, {}, "broker.conf: listenPort='x'"),
        ("", {"ROCKETLINE_LISTEN_PORT": "x"}, {}, "environment: listenPort='x'"),
        ("", {}, {"listenPort": "x"}, "flags: listenPort='x'"),
    ],
)
def test_a_wrong_value_is_named_with_its_source(
    file: Path, text: str, environ: dict[str, str], flags: dict[str, str], named: str
) -> None:
    file.write_text(text)
    with pytest.raises(ConfigError, match=named):
        merged_values(BrokerConfig, file, environ, flags)


def test_a_file_that_is_not_text_is_refused(file: Path) -> None:
    file.write_bytes(b"brokerName=\xff\xfe")
    with pytest.raises(ConfigError, match=str(file)):
        merged_values(BrokerConfig, file, {}, {})


@pytest.mark.parametrize(
    ("host", "expected"),
    [("127.0.0.1", True), ("127.9.9.9", True), ("::1", True), ("[::1]", True), ("localhost", True), ("0.0.0.0", False),
     ("::", False), ("", False), ("10.0.0.1", False), ("example.org", False)],
)  # fmt: skip
def test_loopback(host: str, expected: bool) -> None:
    assert is_loopback(host) is expected


def test_the_file_of_apaches_proxy_works(tmp_path: Path, caplog: pytest.LogCaptureFixture) -> None:
    path = tmp_path / "rmq-proxy.json"
    path.write_text(
        '{"rocketMQClusterName": "c", "proxyMode": "CLUSTER", "namesrvAddr": "10.0.0.1:9876", "grpcServerPort": 8081,'
        ' "maxMessageSize": 8388608, "grpcThreadPoolNums": 4, "enableACL": false}'
    )
    config, unknown = load(ProxyConfig, merged_values(ProxyConfig, path, {}, {}))
    assert (config.name_servers, config.grpc.port, config.max_message_bytes) == (["10.0.0.1:9876"], 8081, 8 << 20)
    assert not unknown
    told = [record.getMessage() for record in caplog.records]
    assert told[0].endswith("ignores them: enableACL, grpcThreadPoolNums")
    assert [line.split(": ")[1] for line in told[1:]] == [
        "proxyMode has no effect",
        "rocketMQClusterName has no effect",
    ]


@pytest.mark.parametrize("text", ['{"namesrvAddr": ', "{}\n[1]"])
def test_a_broken_json_file_is_refused(text: str, tmp_path: Path) -> None:
    path = tmp_path / "rmq-proxy.json"
    path.write_text(text)
    with pytest.raises(ConfigError, match="cannot read the settings file"):
        merged_values(ProxyConfig, path, {}, {})
