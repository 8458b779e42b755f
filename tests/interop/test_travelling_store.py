"""A folder goes from rocketline to Apache and back, twice, killed under load at each departure and trimmed on the way.

One journey is made for all tests here (see tests/support/travelling.py); each test judges one side of what the hosts saw.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping
from itertools import pairwise

import pytest
from tests.support.apache import SERVER_VERSION, server_coordinates
from tests.support.cargo import (
    DELAYED,
    DELAYS_MS,
    IPV6,
    KEY_TOPICS,
    LOAD,
    LONG,
    OLD,
    SAME_HASH,
    SEGMENT_BYTES,
    SPREAD,
    STORE_CONFIG,
    STORE_V6,
    UNITS_PER_FILE,
)
from tests.support.comparing import assert_same_records
from tests.support.java import require_java
from tests.support.java_client import Seen
from tests.support.store_files import FILLER, SCHEDULE_TOPIC, QueueKey, Unit, expected_units, walk_log, written_units
from tests.support.travelling import LOAD_AT_LEAST, Travelling, Visit
from tests.support.wire import Acknowledged

from rocketline.broker.delays.delay_levels import deliver_time_codes
from rocketline.protocol.message_ids import encode_host, offset_id
from rocketline.protocol.record_layout import BORN_IPV6, STORE_IPV6
from rocketline.protocol.records import record_size, topic_part
from rocketline.store.message_store import MessageStore

# One process makes the journey; a first run fetches jars.
pytestmark = pytest.mark.interop

HOSTS = ("rocketline", "apache", "rocketline", "apache", "rocketline")
FIRST, APACHE, BACK, REBUILT, LAST = range(len(HOSTS))
every_arrival = pytest.mark.parametrize("number", [APACHE, BACK, REBUILT, LAST])
Place = tuple[str, int, int]


@pytest.fixture(scope="module")
def journey(java_clients, tmp_path_factory) -> Travelling:
    require_java(*server_coordinates(SERVER_VERSION))
    travelling = Travelling(java_clients("5.4.0"), tmp_path_factory.mktemp("travelling"))
    travelling.run()
    assert tuple(visit.host for visit in travelling.visits) == HOSTS
    return travelling


def seen_in(visit: Visit) -> Iterator[Seen]:
    for messages in visit.contents.values():
        yield from messages


def by_place(messages: Iterable[Seen]) -> dict[Place, Seen]:
    return {(message.topic, message.queue_id, message.queue_offset): message for message in messages}


def kept(visit: Visit) -> list[Acknowledged]:
    """What was acknowledged before the visit, has not been trimmed, and was not sent with a delay."""
    return [item for item in visit.before if item.log_offset >= visit.log.min_offset and item.topic != DELAYED]


@pytest.mark.parametrize("number", range(len(HOSTS)))
def test_everything_acknowledged_before_the_kill_is_served_where_the_answer_said(journey: Travelling, number: int):
    visit = journey.visits[number]
    served = by_place(seen_in(visit))
    assert len(kept(visit)) > 100
    for item in kept(visit):
        message = served[item.topic, item.queue_id, item.queue_offset]
        assert (message.commit_log_offset, message.body) == (item.log_offset, item.body)


@every_arrival
def test_nothing_is_served_that_was_not_sent(journey: Travelling, number: int):
    """A message that was on its way at the kill may be there without an answer; nobody else's may."""
    visit = journey.visits[number]
    known = {(item.topic, item.queue_id, item.queue_offset) for item in kept(visit)}
    unanswered = set(by_place(seen_in(visit))) - known
    assert {topic for topic, _, _ in unanswered} <= {LOAD, DELAYED}
    assert len([place for place in unanswered if place[0] == LOAD]) <= 8 * number


@every_arrival
def test_records_stay_as_they_were_stored(journey: Travelling, number: int):
    before, after = journey.visits[number - 1], journey.visits[number]
    old, new = by_place(seen_in(before)), by_place(seen_in(after))
    common = [place for place, seen in old.items() if seen.commit_log_offset >= after.log.min_offset]
    assert_same_records([old[place] for place in common], [new[place] for place in common])


@pytest.mark.parametrize("number", range(len(HOSTS)))
def test_queues_go_on_where_they_ended(journey: Travelling, number: int):
    visit = journey.visits[number]
    ends = {(queue.topic, queue.queue_id): bounds.max for queue, bounds in visit.bounds.items()}
    assert number == FIRST or (SPREAD, 3) in ends
    for topic in {item.topic for item in visit.acknowledged} - {DELAYED, LOAD}:
        for queue_id in {item.queue_id for item in visit.acknowledged if item.topic == topic}:
            sent = [
                item.queue_offset for item in visit.acknowledged if (item.topic, item.queue_id) == (topic, queue_id)
            ]
            first = ends.get((topic, queue_id), 0)
            assert sent == list(range(first, first + len(sent)))


@every_arrival
def test_consume_queues_hold_what_the_log_says(journey: Travelling, number: int):
    """Those the former host dispatched, those it could not, and after the loss of all queues every one of them."""
    visit = journey.visits[number]
    expected = expected_units(visit.log.records, DELAYS_MS)
    assert {SCHEDULE_TOPIC, SPREAD, LONG, LOAD} <= {topic for topic, _ in expected}
    assert _in_log(visit.units, visit.log.min_offset) == expected
    for units in visit.units.values():
        assert sorted(units) == list(range(min(units), max(units) + 1))


@every_arrival
def test_messages_made_to_measure_roll_the_log_at_the_same_byte(journey: Travelling, number: int):
    """A record goes to the next file unless it and a blank's eight bytes fit."""
    writer, reader = journey.visits[number - 1], journey.visits[number]
    assert [placed.left for placed in writer.placements] == [9, 8, 7, 4, 1, 0]
    for placed in writer.placements:
        stays = placed.left >= 8
        assert placed.log_offset == (placed.next_offset if stays else placed.next_base)
        blank_at = placed.next_base - placed.left if stays else placed.next_offset
        if blank_at >= reader.log.min_offset:
            assert reader.log.blanks[blank_at] == placed.next_base - blank_at


@every_arrival
def test_the_kills_came_where_they_should(journey: Travelling, number: int):
    """The journey is what it claims to be: unread load behind it, and at first a log that had just rolled."""
    killed = journey.visits[number - 1]
    assert len([item for item in killed.acknowledged if item.topic == LOAD]) >= LOAD_AT_LEAST
    [last] = [item for item in killed.acknowledged if item.body == b"delayed %d" % number]
    if number <= 2:
        assert last.log_offset % SEGMENT_BYTES < SEGMENT_BYTES // 2
    assert len(journey.visits[number].log.blanks) >= 4


@every_arrival
@pytest.mark.parametrize("topic", KEY_TOPICS)
@pytest.mark.parametrize("key", SAME_HASH)
def test_keys_with_one_hash_are_told_apart(journey: Travelling, number: int, topic: str, key: str):
    """Four keys and two topics share one hash, all keys of the store share seven slots."""
    visit = journey.visits[number]
    wanted = [item.log_offset for item in kept(visit) if item.topic == topic and key in item.keys.split()]
    assert number == LAST or len(wanted) == number
    assert sorted(seen.commit_log_offset for seen in visit.found[topic, key]) == wanted


@pytest.mark.parametrize("number", [FIRST, APACHE, BACK, REBUILT])
def test_ipv6_hosts_are_read_completely(journey: Travelling, number: int):
    visit = journey.visits[number]
    messages = sorted(visit.contents[IPV6], key=lambda message: message.queue_offset)
    flags = [message.sys_flag & (BORN_IPV6 | STORE_IPV6) for message in messages]
    assert flags == [0, BORN_IPV6, STORE_IPV6, STORE_IPV6 | BORN_IPV6, STORE_IPV6, STORE_IPV6 | BORN_IPV6]
    for message in messages:
        by_v6 = bool(message.sys_flag & STORE_IPV6)
        host = STORE_V6 if by_v6 else encode_host("127.0.0.1", 10911)
        assert message.offset_msg_id == offset_id(host, message.commit_log_offset)
        assert len(message.offset_msg_id) == (56 if by_v6 else 32)
        assert (
            message.body
            == visit.viewed[message.commit_log_offset]
            == (b"stored by IPv6" if by_v6 else b"stored by IPv4")
        )
        assert message.born_host.endswith(":4567")


@every_arrival
def test_topics_over_127_bytes_travel_as_the_second_record_version(journey: Travelling, number: int):
    visit = journey.visits[number]
    records = [record for record in visit.log.records if record.topic == LONG]
    if number < LAST:
        assert len(records) == 3 + 3 * number
    topic = topic_part(LONG)[1]
    for record in records:
        assert record.size == record_size(len(record.body), len(topic), len(record.properties), record.sys_flag)
    assert {message.commit_log_offset for message in visit.contents[LONG]} == {record.log_offset for record in records}


@every_arrival
def test_trimmed_queues_start_at_their_first_message_that_is_left(journey: Travelling, number: int):
    visit = journey.visits[number]
    assert visit.log.min_offset > 0
    firsts: dict[QueueKey, int] = {}
    for record in visit.log.records:
        firsts.setdefault((record.topic, record.queue_id), record.queue_offset)
    for queue, bounds in visit.bounds.items():
        if (queue.topic, queue.queue_id) in firsts:
            assert bounds.min == firsts[queue.topic, queue.queue_id]
    assert number == LAST or all(firsts[OLD, queue_id] > 0 for queue_id in range(4))


def test_a_trimmed_log_without_queues_gets_the_same_queues_from_both(journey: Travelling):
    """Fillers included: units before the first message that is left, back to the start of their file."""
    visit = journey.visits[REBUILT]
    store = MessageStore(
        journey.lost_queues, STORE_CONFIG, encode_host("127.0.0.1", 10911), tags_code_for=deliver_time_codes(DELAYS_MS)
    )
    report = store.open()
    store.close()
    assert report.after_crash
    ours = written_units(journey.lost_queues)
    theirs = {
        key: {number: unit for number, unit in units.items() if unit[0] < report.log_next_offset}
        for key, units in visit.units.items()
    }
    assert ours == {key: units for key, units in theirs.items() if units}
    fillers = [number for number, unit in ours[OLD, 0].items() if unit == FILLER]
    assert fillers
    assert min(fillers) % UNITS_PER_FILE == 0


@pytest.mark.parametrize("number", range(len(HOSTS)))
def test_a_folder_in_use_is_refused_whoever_uses_it(journey: Travelling, number: int):
    assert f"{journey.store}" in journey.visits[number].refusal


def test_consumer_offsets_travel(journey: Travelling):
    assert [visit.committed for visit in journey.visits] == [7 * number for number in range(len(HOSTS))]


@every_arrival
def test_a_delayed_message_in_flight_at_the_kill_arrives_at_the_next_host(journey: Travelling, number: int):
    visit = journey.visits[number]
    bodies = [message.body for message in visit.contents[DELAYED]]
    assert bodies.count(b"delayed %d" % number) == 1
    assert set(bodies) <= {b"delayed %d" % arrived for arrived in range(1, number + 1)}


@every_arrival
def test_messages_with_a_long_delay_stay_where_they_wait(journey: Travelling, number: int):
    visit = journey.visits[number]
    sent = [item for item in visit.before if item.body.endswith(b"in two hours")]
    assert len(sent) == number
    waiting = [(message.commit_log_offset, message.body) for message in visit.pending]
    assert waiting == [(item.log_offset, item.body) for item in sent if item.log_offset >= visit.log.min_offset]


def test_records_with_a_checksum_among_their_properties_are_served(journey: Travelling):
    """Apache's enabledAppendPropCRC, on for its second visit only."""
    written = {item.log_offset for item in journey.visits[REBUILT].acknowledged}
    last = journey.visits[LAST]
    with_checksum = {record.log_offset for record in last.log.records if b"__CRC32#" in record.properties}
    assert {offset for offset in written if offset >= last.log.min_offset} <= with_checksum
    assert len(with_checksum) > 100
    for message in seen_in(last):
        assert ("__CRC32#" in message.properties) == (message.commit_log_offset in with_checksum)


def test_the_last_kill_is_survived_too(journey: Travelling):
    """The folder at the end of its journey, read without any broker."""
    log = walk_log(journey.store)
    stored = {(record.topic, record.queue_id, record.queue_offset): record for record in log.records}
    for item in journey.visits[LAST].acknowledged:
        if item.topic != DELAYED:
            record = stored[item.topic, item.queue_id, item.queue_offset]
            assert (record.log_offset, bytes(record.body)) == (item.log_offset, item.body)
    assert all(a.log_offset + a.size <= b.log_offset for a, b in pairwise(log.records))


def _in_log(units: Mapping[QueueKey, Mapping[int, Unit]], log_minimum: int) -> dict[QueueKey, dict[int, Unit]]:
    """Units of records that are still there; queues without any are left out."""
    left = {
        key: {number: unit for number, unit in queue.items() if unit[0] >= log_minimum and unit != FILLER}
        for key, queue in units.items()
    }
    return {key: queue for key, queue in left.items() if queue}
