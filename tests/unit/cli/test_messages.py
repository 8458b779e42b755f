"""`rocketline produce` and `rocketline consume` on a running cluster, and without one."""

from __future__ import annotations

import csv
import io
import json
import signal
import socket
import subprocess
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest
from tests.support.patience import PATIENCE_S

from rocketline.cli.servers.child import cli_command, cli_environment
from rocketline.testing import LocalCluster

Run = Callable[..., "subprocess.CompletedProcess[str]"]


@pytest.fixture(scope="module")
def namesrv() -> Iterator[str]:
    with LocalCluster() as cluster:
        yield cluster.namesrv


@pytest.fixture
def nobody() -> Iterator[str]:
    """An address where nobody listens: taken, so that nobody else can."""
    with socket.socket() as holder:
        holder.bind(("127.0.0.1", 0))
        yield f"127.0.0.1:{holder.getsockname()[1]}"


def test_what_is_produced_is_consumed(called: Run, namesrv: str) -> None:
    sent = called("produce", "orders", "hello", "wörld", "--tag", "created", "--key", "42", "--key", "43",
                      "--property", "colour=red", "--namesrv", namesrv, "--output", "json")  # fmt: skip
    assert sent.returncode == 0, sent.stderr
    receipts = [json.loads(line) for line in sent.stdout.splitlines()]
    assert "sent 2 messages to orders" in sent.stderr
    read = called("consume", "orders", "--from-beginning", "--count", 2, "--output", "json", "--namesrv", namesrv)
    assert read.returncode == 0, read.stderr
    messages = {fields["message_id"]: fields for fields in map(json.loads, read.stdout.splitlines())}
    assert {fields["body"] for fields in messages.values()} == {"hello", "wörld"}
    for receipt in receipts:
        message = messages[receipt["message_id"]]
        assert [message[name] for name in ("topic", "broker", "queue", "offset")] == [
            receipt[name] for name in ("topic", "broker", "queue", "offset")
        ]
        assert (message["tag"], message["keys"]) == ("created", ["42", "43"])
        assert message["properties"]["colour"] == "red"


def test_lines_of_standard_input_are_messages(rocketline: Run, namesrv: str) -> None:
    sent = rocketline("produce", "lines", "--namesrv", namesrv, text="one\n\ntwo\nthree")
    assert sent.returncode == 0, sent.stderr
    assert [line.split()[0] for line in sent.stdout.splitlines()] == ["SEND_OK"] * 3
    read = rocketline("consume", "lines", "--from-beginning", "--count", 3, "--namesrv", namesrv)
    assert sorted(line.rpartition("  ")[2] for line in read.stdout.splitlines()) == ["one", "three", "two"]


def test_count_repeats_and_quiet_shows_the_sum_only(called: Run, namesrv: str) -> None:
    sent = called("produce", "many", "a", "b", "--count", 200, "--quiet", "--namesrv", namesrv)
    assert (sent.returncode, sent.stdout) == (0, "")
    assert "sent 400 messages to many" in sent.stderr
    read = called("consume", "many", "--from-beginning", "--count", 400, "--namesrv", namesrv)
    assert sorted(line.rpartition("  ")[2] for line in read.stdout.splitlines()) == ["a"] * 200 + ["b"] * 200


def test_only_the_tags_wanted_are_shown(called: Run, namesrv: str) -> None:
    for tag in ("red", "green", "blue"):
        called("produce", "colours", tag, "--tag", tag, "-q", "--namesrv", namesrv)
    read = called("consume", "colours", "--from-beginning", "--tag", "red || blue", "--count", 2, "-n", namesrv)
    assert sorted(line.rpartition("  ")[2] for line in read.stdout.splitlines()) == ["blue", "red"]


def test_a_group_goes_on_where_it_was_and_looking_changes_nothing(called: Run, namesrv: str) -> None:
    called("produce", "shared", "one", "two", "three", "-q", "--namesrv", namesrv)
    member = ("consume", "shared", "--group", "readers", "--from-beginning", "--namesrv", namesrv, "--count")
    first = called(*member, 2)
    looked = called("consume", "shared", "--from-beginning", "--count", 3, "--namesrv", namesrv)
    second = called(*member, 1)
    assert len(looked.stdout.splitlines()) == 3
    taken = [line.rpartition("  ")[2] for line in (first.stdout + second.stdout).splitlines()]
    assert sorted(taken) == ["one", "three", "two"]


def test_a_live_tail_shows_what_comes_and_ends_with_a_signal(called: Run, namesrv: str) -> None:
    called("produce", "live", "before", "-q", "--namesrv", namesrv)
    tail = subprocess.Popen(
        cli_command("consume", "live", "--namesrv", namesrv),
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        text=True,
        env=cli_environment(),
    )
    assert tail.stdout is not None
    assert tail.stderr is not None
    assert tail.stderr.readline().startswith("reading ")
    called("produce", "live", "after", "-q", "--namesrv", namesrv)
    assert tail.stdout.readline().endswith("  after\n")
    tail.send_signal(signal.SIGINT)
    rest, errors = tail.communicate(timeout=PATIENCE_S)
    assert (tail.returncode, rest, errors) == (0, "", "")


def test_the_environment_names_the_server(rocketline: Run, namesrv: str) -> None:
    sent = rocketline("produce", "environment", "x", NAMESRV_ADDR=namesrv)
    assert sent.returncode == 0, sent.stderr


@pytest.mark.parametrize(
    "arguments", [("produce", "orders", "x"), ("consume", "orders"), ("consume", "orders", "--group", "g")]
)
def test_a_name_server_that_is_down_is_named(rocketline: Run, nobody: str, arguments: tuple[str, ...]) -> None:
    result = rocketline(*arguments, "--namesrv", nobody)
    assert result.returncode == 1
    assert result.stdout == ""
    line = _error(result.stderr)
    assert nobody in line


@pytest.mark.parametrize("more", [(), ("--group", "g")])
def test_an_unknown_topic_is_named(called: Run, namesrv: str, more: tuple[str, ...]) -> None:
    result = called("consume", "nothing_here", "--namesrv", namesrv, *more)
    assert result.returncode == 1
    line = _error(result.stderr)
    assert "nothing_here" in line
    assert namesrv in line


@pytest.mark.parametrize("topic", ["../../x", "two words", "a" * 128, ""])
def test_an_illegal_topic_is_refused(called: Run, namesrv: str, topic: str) -> None:
    for command in (("produce", topic, "x"), ("consume", topic)):
        result = called(*command, "--namesrv", namesrv)
        assert result.returncode == 1
        assert "topic" in _error(result.stderr)


def test_a_body_over_the_limit_is_refused(rocketline: Run, namesrv: str) -> None:
    result = rocketline("produce", "big", "--namesrv", namesrv, text="x" * (4 * 1024 * 1024 + 1))
    assert result.returncode == 1
    assert "4194305 bytes" in _error(result.stderr)


def test_an_address_that_is_none_is_refused(called: Run) -> None:
    result = called("produce", "orders", "x", "--namesrv", "localhost")
    assert result.returncode == 1
    assert "'localhost'" in _error(result.stderr)


def test_a_reader_that_has_enough_is_no_failure(called: Run, namesrv: str, tmp_path: Path) -> None:
    called("produce", "pipe", "x", "--count", 300, "-q", "--namesrv", namesrv)
    reading = subprocess.Popen(
        cli_command("consume", "pipe", "--from-beginning", "--count", "300", "--namesrv", namesrv),
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        text=True,
        env=cli_environment(),
    )
    assert reading.stdout is not None
    assert reading.stderr is not None
    reading.stdout.close()
    assert reading.wait(PATIENCE_S) == 0
    assert "error" not in reading.stderr.read()
    reading.stderr.close()


def _error(text: str) -> str:
    """The one line that says what failed."""
    (line,) = [line for line in text.splitlines() if line.startswith("error: ")]
    assert "Traceback" not in text
    return line


def test_reading_begins_where_it_is_told(called: Run, namesrv: str) -> None:
    called("produce", "starts", "a", "b", "c", "--ordering-key", "k", "-q", "--namesrv", namesrv)

    def read(*start: object) -> list[str]:
        result = called("consume", "starts", *start, "--format", "{body}", "--namesrv", namesrv)
        assert result.returncode == 0, result.stderr
        return str(result.stdout).split()

    assert read("--from-offset", "earliest", "--count", 3) == ["a", "b", "c"], "one key keeps the order"
    assert read("--from-offset", 1, "--count", 2) == ["b", "c"]
    assert read("--since", "1h", "--count", 3) == ["a", "b", "c"]
    assert read("--since", "1h", "--count", 3, "--group", "since_readers") == ["a", "b", "c"]


def test_sql_selects_by_properties_and_csv_has_columns(called: Run, namesrv: str) -> None:
    for amount in (5, 15):
        called("produce", "amounts", f"{amount} coins", "--property", f"amount={amount}", "-q", "--namesrv", namesrv)
    read = called(
        "consume", "amounts", "--from-beginning", "--sql", "amount > 10", "--count", 1, "-o", "csv", "-n", namesrv
    )
    (row,) = csv.DictReader(io.StringIO(read.stdout))
    assert (row["topic"], row["body"], json.loads(row["properties"])["amount"]) == ("amounts", "15 coins", "15")


def test_a_delayed_message_comes_later(called: Run, namesrv: str) -> None:
    (receipt,) = map(
        json.loads, called("produce", "late", "x", "--delay", "1s", "-o", "json", "-n", namesrv).stdout.splitlines()
    )
    (message,) = map(
        json.loads,
        called("consume", "late", "--from-beginning", "--count", 1, "-o", "json", "-n", namesrv).stdout.splitlines(),
    )
    assert message["message_id"] == receipt["message_id"]
    assert message["store_ms"] >= message["born_ms"] + 1000


@pytest.mark.parametrize(
    ("arguments", "named"),
    [
        (["consume", "t", "--since", "tomorrow"], "is not a time"),
        (["consume", "t", "--from-offset", "first"], "earliest or latest is expected"),
        (["consume", "t", "--from-offset", "1", "--since", "1h"], "exclude each other"),
        (["consume", "t", "--from-offset", "1", "--group", "g"], "reads without a group"),
        (["consume", "t", "--sql", "amount >"], "found the end"),
        (["consume", "t", "--sql", "a = 1", "--tag", "b"], "exclude each other"),
        (["consume", "t", "--format", "{colour}"], "fields are topic"),
        (["consume", "t", "--format", "{body}", "-o", "json"], "exclude each other"),
        (["produce", "t", "x", "--delay", "soon"], "is not a duration"),
        (["produce", "t", "x", "--property", "colour"], "NAME=VALUE is expected"),
    ],
)
def test_a_wrong_value_is_explained(called: Run, arguments: list[str], named: str) -> None:
    result = called(*arguments)
    assert (result.returncode, named in result.stderr) == (2, True), result.stderr
    assert f"see `rocketline {arguments[0]} --help`" in result.stderr
