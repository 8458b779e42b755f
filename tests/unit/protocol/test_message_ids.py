from __future__ import annotations

import os
import subprocess
import sys
import time
from collections.abc import Iterator
from datetime import UTC, datetime
from ipaddress import ip_address

import pytest
from tests.golden.wire.load import ids
from tests.support.capabilities import needs_fork
from tests.support.patience import PATIENCE_S

from rocketline.clock import ManualClock
from rocketline.errors import ProtocolError
from rocketline.protocol.message_ids import UniqueIds, decode_host, encode_host, offset_id, parse_offset_id


@pytest.fixture
def utc(monkeypatch: pytest.MonkeyPatch) -> Iterator[None]:
    monkeypatch.setenv("TZ", "UTC")
    time.tzset()
    yield
    monkeypatch.undo()
    time.tzset()


def test_offset_ids_of_apache() -> None:
    for vector in ids()["offset_msg_id"]:
        host = encode_host(vector["host"], vector["port"])
        assert offset_id(host, vector["offset"]) == vector["offsetMsgId"]
        address, log_offset = parse_offset_id(vector["offsetMsgId"])
        assert log_offset == vector["offset"]
        ip, _, port = address.rpartition(":")
        assert (ip_address(ip.strip("[]")), int(port)) == (ip_address(vector["host"]), vector["port"])


@pytest.mark.parametrize("text", ["", "x", "7F00000100002A9F000000000000000", "7F" * 17, "ZZ" * 16, "é" * 32])
def test_offset_ids_refused(text: str) -> None:
    with pytest.raises(ProtocolError, match="not an offset message id"):
        parse_offset_id(text)


def test_hosts() -> None:
    assert decode_host(encode_host("127.0.0.1", 10911)) == "127.0.0.1:10911"
    assert decode_host(encode_host("2001:db8::1", 80)) == "[2001:db8::1]:80"
    assert encode_host("::ffff:10.0.0.1", 1) == encode_host("10.0.0.1", 1)
    assert encode_host("fe80::1%eth0", 1) == encode_host("fe80::1", 1)


@pytest.mark.usefixtures("utc")
def test_unique_ids_have_apaches_parts() -> None:
    vector = ids()["unique_id"][0]
    made = UniqueIds(vector["ip"].replace("fd00:0000", "fd00:0"), ManualClock(vector["nowMs"])).next()
    theirs = vector["uniqId"]
    assert len(made) == len(theirs) == 56
    assert made[:32] == theirs[:32]
    assert int(made[32:36], 16) == os.getpid() & 0xFFFF
    assert made[44:52] == theirs[44:52]
    assert made[52:] == "0000"


def test_unique_ids_of_ipv4() -> None:
    made = UniqueIds("192.168.1.100", ManualClock()).next()
    assert len(made) == 32
    assert made.startswith("C0A80164")
    assert made == made.upper()


def test_unique_ids_do_not_repeat() -> None:
    unique = UniqueIds("127.0.0.1", ManualClock())
    assert len({unique.next() for _ in range(65536)}) == 65536
    assert UniqueIds("127.0.0.1", ManualClock()).next() != UniqueIds("127.0.0.1", ManualClock()).next()


@pytest.mark.usefixtures("utc")
@pytest.mark.parametrize(
    ("moment", "next_month"),
    [
        (datetime(2026, 11, 30, 23, 59, 59, tzinfo=UTC), datetime(2026, 12, 1, tzinfo=UTC)),
        (datetime(2026, 12, 31, 23, 59, 59, tzinfo=UTC), datetime(2027, 1, 1, tzinfo=UTC)),
        (datetime(2028, 2, 29, 23, 59, 59, tzinfo=UTC), datetime(2028, 3, 1, tzinfo=UTC)),
    ],
)
def test_unique_ids_start_over_each_month(moment: datetime, next_month: datetime) -> None:
    clock = ManualClock(int(moment.timestamp() * 1000))
    unique = UniqueIds("127.0.0.1", clock)
    month_ms = int((next_month - moment.replace(day=1, hour=0, minute=0, second=0)).total_seconds() * 1000)
    assert int(unique.next()[20:28], 16) == month_ms - 1000
    clock.advance(1)
    assert int(unique.next()[20:28], 16) == 0
    clock.jump_wall(-1)
    assert int(unique.next()[20:28], 16) == month_ms - 1000


FORKING = """
import os
from rocketline.protocol.message_ids import UniqueIds
unique = UniqueIds("127.0.0.1")
unique.next()
if os.fork() == 0:
    print(os.getpid(), unique.next(), flush=True)
    os._exit(0)
os.wait()
print(os.getpid(), unique.next())
"""


@needs_fork
def test_a_forked_child_makes_its_own() -> None:
    # A program of its own: this process may have threads, which must not be copied.
    found = subprocess.run(
        [sys.executable, "-c", FORKING], capture_output=True, text=True, timeout=PATIENCE_S, check=True
    )
    (child_pid, child), (parent_pid, parent) = (line.split() for line in found.stdout.splitlines())
    assert int(child[8:12], 16) == int(child_pid) & 0xFFFF
    assert int(parent[8:12], 16) == int(parent_pid) & 0xFFFF
    assert child[12:20] != parent[12:20]
