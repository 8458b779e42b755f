"""Options of data sources: read in the right type, or refused with what is wrong and what was probably meant."""

from __future__ import annotations

import pickle
from pathlib import Path

import pytest

from rocketline.errors import ConfigError
from rocketline.spark.log.plan import LogWindow
from rocketline.spark.log.source import LogOptions
from rocketline.spark.options import Options


def test_names_have_no_case_and_values_no_blanks_around_them() -> None:
    options = Options("x", {"maxrows": " 7 ", "CHECKCRC": "False", "topic": "a, b,,a"})
    assert options.number("maxRows") == 7
    assert options.flag("checkCrc", True) is False
    assert options.names("topic") == ("a", "b")
    options.refuse_others()


def test_defaults_stand_in_for_what_is_absent_or_blank() -> None:
    options = Options("x", {"a": " "})
    assert options.text("a", "other") == "other"
    assert options.number("b") is None
    assert options.flag("c", True) is True
    assert options.size("d", 7) == 7
    assert options.time_ms("e") is None
    assert options.names("f") == ()


def test_one_option_may_have_several_names() -> None:
    assert Options("x", {"nameserver": "h:1"}).text("namesrv", aliases=("nameServer",)) == "h:1"
    with pytest.raises(ConfigError, match="namesrv and nameServer are the same option"):
        Options("x", {"nameserver": "h:1", "namesrv": "h:2"}).text("namesrv", aliases=("nameServer",))


@pytest.mark.parametrize(("written", "size"), [("100", 100), ("1k", 1024), ("128m", 128 << 20), ("2GB", 2 << 30)])
def test_sizes_may_have_a_unit(written: str, size: int) -> None:
    assert Options("x", {"size": written}).size("size", 1) == size


@pytest.mark.parametrize(
    ("written", "ms"),
    [
        ("1700000000123", 1_700_000_000_123),
        ("2023-11-14T22:13:20.123Z", 1_700_000_000_123),
        ("2023-11-14 22:13:20", 1_700_000_000_000),
        ("2023-11-15T00:13:20+02:00", 1_700_000_000_000),
        ("2023-11-14", 1_699_920_000_000),
    ],
)
def test_times_are_milliseconds_or_iso(written: str, ms: int) -> None:
    assert Options("x", {"at": written}).time_ms("at") == ms


def test_options_with_a_prefix_are_passed_through() -> None:
    options = Options("x", {"rocketmq.tls": "true", "topic": "a"})
    assert options.with_prefix("rocketmq.") == {"tls": "true"}
    with pytest.raises(ConfigError, match="unknown option 'topic'"):
        options.refuse_others()


@pytest.mark.parametrize(
    ("given", "problem"),
    [
        ({}, "rocketmq-log: option 'path' is needed"),
        ({"path": "ftp://host/store"}, "ftp://host/store is not on a disk of this machine"),
        ({"path": "/s", "topc": "a"}, "unknown option 'topc', did you mean 'topic'"),
        ({"path": "/s", "startingtimestmp": "1"}, "did you mean 'startingTimestamp'"),
        ({"path": "/s", "zzz": "1"}, "unknown option 'zzz'; there are path, topic"),
        ({"path": "/s", "ondamage": "ignore"}, "'onDamage' must be one of fail, skip, report, not 'ignore'"),
        ({"path": "/s", "checkcrc": "1"}, "'checkCrc' must be true or false, not '1'"),
        ({"path": "/s", "partitionbytes": "0"}, "'partitionBytes' must be at least 1 bytes"),
        ({"path": "/s", "partitionbytes": "many"}, "must be a size such as"),
        ({"path": "/s", "startinglogoffset": "-1"}, "'startingLogOffset' must be from 0"),
        ({"path": "/s", "startinglogoffset": "earliest"}, "'startingLogOffset' must be a whole number"),
        ({"path": "/s", "endingtimestamp": "yesterday"}, "'endingTimestamp' must be milliseconds since 1970 or a time"),
        ({"path": "/s", "startinglogoffset": "5", "endinglogoffset": "4"}, "startingLogOffset 5 is behind"),
    ],
)  # fmt: skip
def test_what_makes_no_sense_is_refused(given: dict[str, str], problem: str) -> None:
    with pytest.raises(ConfigError) as caught:
        LogOptions.parse(given)
    assert problem in str(caught.value)


def test_all_options_of_the_log_source() -> None:
    options = LogOptions.parse(
        {
            "path": "file:///data/my%20store",
            "topic": "a,b",
            "startinglogoffset": "10",
            "endinglogoffset": "20",
            "startingtimestamp": "30",
            "endingtimestamp": "40",
            "ondamage": "Skip",
            "checkcrc": "false",
            "partitionbytes": "1m",
            "brokername": "broker-a",
        }
    )
    assert options == LogOptions(
        Path("/data/my store"), ("a", "b"), LogWindow(10, 20, 30, 40), "skip", False, 1 << 20, "broker-a"
    )
    assert pickle.loads(pickle.dumps(options)) == options
