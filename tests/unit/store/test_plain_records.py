"""A batch whose messages are alike is written and noted as one whose messages are taken one by one."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from rocketline.protocol.headers import SendMessageHeader
from rocketline.protocol.message_ids import encode_host
from rocketline.protocol.records import BatchItem, decode_record, encode_batch, log_entry, topic_part
from rocketline.store.known_properties import KnownProperties
from rocketline.store.log.appended_range import QueueShare
from rocketline.store.log.commit_log import Place
from rocketline.store.plain_batches import alike_batch, plain_batch
from rocketline.store.plain_records import PlainRecords

HEADER = SendMessageHeader("p", "orders", "TBW102", 4, 3, 0x80, 1_700_000_000_000, 7, "", 5, batch=True)
PLACE: Place = ("orders", topic_part("orders")[1], (("orders", 0),))
V4, V6 = encode_host("192.0.2.1", 10911), encode_host("2001:db8::1", 40000)
START, ROOM = 1000, 1 << 20

batches = st.builds(
    lambda flag, bodies, before, after: encode_batch(
        [
            BatchItem(flag, body, b"%bUNIQ_KEY\x017F000001%08X%b" % (before, number * 7919, after))
            for number, body in enumerate(bodies)
        ]
    ),
    st.sampled_from([0, -1]),
    st.lists(st.binary(min_size=5, max_size=5), min_size=1, max_size=40) | st.just([b""] * 3),
    st.sampled_from([b"", b"WAIT\x01true\x02", b"TAGS\x01a\x02", b"TAGS\x01a-rather-long-one-\xc3\xbc\x02"]),
    st.sampled_from([b"", b"\x02", b"\x02more\x01\0\x02"]),
)


class Written:
    """What becomes of a batch."""

    def __init__(self, body: bytes, as_alike: bool, hosts: tuple[bytes, bytes] = (V4, V4), room: int = ROOM) -> None:
        known = KnownProperties(False)
        self.records = PlainRecords(hosts[0], (200, 1000), known)
        self.records.begin(START + room, START, 1_700_000_000_001)
        self.share = QueueShare(("orders", 3), 40)
        self.log_offsets = self.put(body, known, as_alike, hosts[1])
        self.view = memoryview(bytearray(ROOM))
        self.records.write_to(self.view, 0)

    def put(self, body: bytes, known: KnownProperties, as_alike: bool, born_host: bytes) -> list[int] | None:
        if as_alike:
            alike = alike_batch(body, known)
            assert alike is not None
            found = self.records.put_alike(HEADER, PLACE, self.share, born_host, alike)
        else:
            batch = plain_batch(body)
            assert batch is not None
            found = self.records.put_batch(HEADER, PLACE, self.share, born_host, batch)
        if found is not None:
            self.records.filing.shares["orders", 3] = self.share
        return None if found is None else [*found]

    @property
    def left(self) -> tuple[object, ...]:
        records, filing = self.records, self.records.filing
        names = [start + end for start, end in zip(filing.key_starts, filing.key_ends)]
        return (
            self.log_offsets, records.wrote, bytes(self.view), self.share.number, [*filing.entries()], names,
            filing.owners, filing.last_bytes,
        )  # fmt: skip


@given(batches, st.sampled_from([(V4, V4), (V4, V6), (V6, V4), (V6, V6)]))
def test_both_ways_leave_the_same(body: bytes, hosts: tuple[bytes, bytes]) -> None:
    alike = Written(body, True, hosts)
    assert alike.left == Written(body, False, hosts).left
    entries = [*alike.records.filing.entries()]
    assert [entry.queue_offset for entry in entries] == [*range(40, 40 + len(entries))]
    for entry in entries:
        assert log_entry(decode_record(alike.view, entry.log_offset - START, ROOM, check_crc=True)) == entry


@pytest.mark.parametrize("as_alike", [True, False])
def test_what_does_not_fit_changes_nothing(as_alike: bool) -> None:
    def of(count: int) -> bytes:
        return encode_batch([BatchItem(0, b"x" * 20, b"UNIQ_KEY\x01%08d" % number) for number in range(count)])

    taken = Written(of(3), as_alike)
    needed = taken.records.wrote - START
    assert Written(of(3), as_alike, room=needed).left == taken.left
    short = Written(of(3), as_alike, room=needed - 1)
    assert short.left == (None, START, bytes(ROOM), 40, [], [], [], 0)
    assert Written(of(10), as_alike).log_offsets is not None
    assert Written(of(11), as_alike).log_offsets is None, "bodies of 220 bytes, and 200 are the limit"
