"""The interop tools where they need no cluster: the comparison notices every field, Java is found or missed loudly."""

from __future__ import annotations

import zlib
from dataclasses import fields, replace

import pytest
from tests.support import java as java_tools
from tests.support.comparing import (
    READER_FIELDS,
    ClusterFacts,
    assert_same_message,
    assert_same_records,
    assert_uncompressed,
)
from tests.support.java import JavaCompileError, JavaUnavailable, compile_java, require_java, tool
from tests.support.java_client import Outgoing, Seen, Sent

pytestmark = pytest.mark.interop

FACTS = ClusterFacts({"broker-a": "c"}, {"broker-a": "127.0.0.1:10911"})
OUTGOING = Outgoing("t", b"body", tags="T", keys=["k1", "k2"], flag=3, properties={"p": "v"})
GIVEN = {"UNIQ_KEY": "ID", "WAIT": "true", "TAGS": "T", "KEYS": "k1 k2", "p": "v"}
STORED = {**GIVEN, "CLUSTER": "c", "MSG_REGION": "DefaultRegion", "TRACE_ON": "true"}
OFFSET_ID = "7F00000100002A9F0000000000000100"
SENT = Sent("ID", GIVEN, "SEND_OK", OFFSET_ID, "broker-a", 1, 5, "ID", "DefaultRegion")
SEEN = Seen(
    topic="t",
    broker_name="broker-a",
    queue_id=1,
    queue_offset=5,
    msg_id="ID",
    offset_msg_id=OFFSET_ID,
    body=b"body",
    tags="T",
    keys="k1 k2",
    flag=3,
    sys_flag=0,
    properties={**STORED, "MIN_OFFSET": "0", "MAX_OFFSET": "6"},
    born_timestamp=1000,
    born_host="127.0.0.1:40000",
    store_timestamp=1001,
    store_host="127.0.0.1:10911",
    store_size=91 + 4 + 1 + sum(len(name) + len(value) + 2 for name, value in STORED.items()),
    reconsume_times=0,
    body_crc=zlib.crc32(b"body") & 0x7FFFFFFF,
    commit_log_offset=256,
    prepared_transaction_offset=0,
)
OF_DELIVERIES = ("accepted", "delivered_ms")
ALTERED = {
    str: lambda value: value + "0",
    int: lambda value: value + 7,
    bytes: lambda value: value + b"!",
    dict: lambda value: {**value, "extra": "1"},
}


def judge(seen):
    assert_same_message(seen, OUTGOING, SENT, FACTS)
    assert_uncompressed(seen)


def test_a_faithful_message_passes():
    judge(SEEN)
    assert_same_records([SEEN], [SEEN])


@pytest.mark.parametrize("field", [item.name for item in fields(Seen) if item.name not in OF_DELIVERIES])
def test_a_change_of_any_field_is_noticed(field):
    value = getattr(SEEN, field)
    changed = replace(SEEN, **{field: ALTERED[type(value)](value)})
    if field not in ("born_host", "store_timestamp"):  # any port, any later time will do for these two
        with pytest.raises((AssertionError, KeyError)):
            judge(changed)
    if field not in READER_FIELDS or field == "properties":
        with pytest.raises(AssertionError):
            assert_same_records([SEEN], [changed])


def test_a_missing_or_doubled_message_is_noticed():
    with pytest.raises(AssertionError):
        assert_same_records([SEEN], [])
    with pytest.raises(AssertionError):
        assert_same_records([SEEN], [SEEN, SEEN])


@pytest.fixture
def no_java(monkeypatch, tmp_path):
    monkeypatch.setenv("PATH", str(tmp_path))
    for home in ("JAVA_HOME", "MAVEN_HOME"):
        monkeypatch.delenv(home, raising=False)


def test_a_missing_tool_is_named(no_java):
    with pytest.raises(JavaUnavailable, match="mvn is not on PATH"):
        tool("mvn")


@pytest.mark.parametrize(("ci", "outcome"), [("", pytest.skip.Exception), ("true", pytest.fail.Exception)])
def test_without_java_a_laptop_skips_and_ci_fails(no_java, monkeypatch, ci, outcome):
    monkeypatch.setenv("CI", ci)
    with pytest.raises(outcome, match="java is not on PATH"):
        require_java()


def test_classes_are_compiled_once_per_content(monkeypatch, tmp_path):
    require_java()
    monkeypatch.setattr(java_tools, "BUILD", tmp_path / "build")
    source = tmp_path / "src" / "Answer.java"
    source.parent.mkdir()
    source.write_text("class Answer { int value = 42; }")
    first = compile_java(source.parent, "", "answer")
    made = (first / "Answer.class").stat().st_mtime_ns
    assert compile_java(source.parent, "", "answer") == first
    assert (first / "Answer.class").stat().st_mtime_ns == made

    source.write_text("class Answer { int value = ; }")
    with pytest.raises(JavaCompileError, match="illegal start of expression"):
        compile_java(source.parent, "", "answer")
    source.write_text("class Answer { int value = 43; }")
    assert compile_java(source.parent, "", "answer") != first
