"""A store folder written by one broker is opened by another and read completely, in both directions.

Apache hands a store to itself first; that proves the readers and the comparison that judge every other exchange.
"""

from __future__ import annotations

import pytest
from tests.support.apache import QUICK_START, TEST_CONF, ApacheCluster
from tests.support.filling import fill
from tests.support.reading import assert_same_contents, push_all, read_everything

from rocketline.testing import LocalCluster

pytestmark = pytest.mark.interop

FILE_SIZES = {
    key: TEST_CONF[key]
    for key in ("mappedFileSizeCommitLog", "mappedFileSizeConsumeQueue", "maxHashSlotNum", "maxIndexNum")
}
"""A broker refuses files of another size than it is told."""


def ours(data):
    return LocalCluster(data=data, config=FILE_SIZES)


def assert_consumed(java, namesrv, group, topic):
    for queue in java.read_queues(namesrv, topic):
        assert java.committed(namesrv, group, queue) == java.offsets(namesrv, queue).max


def assert_found_by_key(java, namesrv, topic, messages):
    """The key index came along: what was stored under a key is found by it, and by its unique id."""
    wanted = next(message for message in messages if message.keys == "zeros")
    found = java.query_message(namesrv, topic, "zeros")
    assert [message.commit_log_offset for message in found] == [wanted.commit_log_offset]
    assert java.view_message(namesrv, topic, wanted.msg_id).commit_log_offset == wanted.commit_log_offset


def test_apache_opens_a_store_of_apache(java_clients, tmp_path, name):
    """The first broker has a name server beside it and stops cleanly; the second joins one that runs alone."""
    java = java_clients("5.4.0")
    with ApacheCluster(tmp_path / "first", jvm_options=QUICK_START) as first:
        assert set(first.pids) == {"namesrv", "broker"}
        counts = fill(java, first.namesrv, name("kept"))
        before = read_everything(java, first.namesrv)
        assert {topic: len(messages) for topic, messages in before.items() if messages} == counts
        group, topic = name("group"), min(counts)
        push_all(java, first.namesrv, group, topic, counts[topic], committed=True)
        java.release(first.namesrv)
    assert first.pids == {}

    names = ApacheCluster(tmp_path / "names", broker=False, jvm_options=QUICK_START).start()
    second = ApacheCluster(
        tmp_path / "second",
        namesrv=False,
        namesrv_addr=names.namesrv,
        store=first.store,
        jvm_options=QUICK_START,
    )
    try:
        second.start()
        assert set(second.pids) == {"broker"}
        assert_same_contents(before, read_everything(java, names.namesrv))
        assert_consumed(java, names.namesrv, group, topic)
        java.release(names.namesrv)
    finally:
        second.kill()
        names.kill()


def test_a_store_travels_from_us_to_apache_and_back(java_clients, tmp_path, name):
    """We write, Apache reads all of it and writes more, stops cleanly, and we read everything."""
    java = java_clients("5.4.0")
    data = tmp_path / "travelling"
    with ours(data) as first:
        counts = fill(java, first.namesrv, name("we_wrote"))
        before = read_everything(java, first.namesrv)
        assert {topic: len(messages) for topic, messages in before.items() if messages} == counts
        group, topic = name("group"), min(counts)
        push_all(java, first.namesrv, group, topic, counts[topic], committed=True)
        java.release(first.namesrv)

    with ApacheCluster(tmp_path / "apache", store=data, jvm_options=QUICK_START) as apache:
        assert_same_contents(before, read_everything(java, apache.namesrv))
        assert_consumed(java, apache.namesrv, group, topic)
        assert_found_by_key(java, apache.namesrv, topic, before[topic])
        more = fill(java, apache.namesrv, name("apache_wrote"))
        both = read_everything(java, apache.namesrv)
        java.release(apache.namesrv)

    with ours(data) as second:
        after = read_everything(java, second.namesrv)
        assert_same_contents(both, after)
        assert {topic: len(messages) for topic, messages in after.items() if messages} == counts | more
        assert_consumed(java, second.namesrv, group, topic)
        assert_found_by_key(java, second.namesrv, min(more), after[min(more)])
        assert_found_by_key(java, second.namesrv, topic, after[topic])
        java.release(second.namesrv)


def test_we_open_a_store_whose_apache_broker_was_killed(java_clients, tmp_path, name):
    """The kill leaves the abort file, a preallocated log file and indexes that lag behind."""
    java = java_clients("5.4.0")
    apache = ApacheCluster(tmp_path / "killed", jvm_options=QUICK_START).start()
    try:
        counts = fill(java, apache.namesrv, name("kept"))
        before = read_everything(java, apache.namesrv)
        java.release(apache.namesrv)
    finally:
        apache.kill()
    assert (apache.store / "abort").exists()

    with ours(apache.store) as cluster:
        after = read_everything(java, cluster.namesrv)
        assert_same_contents(before, after)
        assert {topic: len(messages) for topic, messages in after.items() if messages} == counts
        java.release(cluster.namesrv)
