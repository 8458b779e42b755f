"""A store directory written by one broker is opened by another and read completely.

Apache hands a store to itself here; that proves the readers and the comparison that judge every other exchange.
"""

from __future__ import annotations

import pytest
from tests.support.apache import QUICK_START, ApacheCluster
from tests.support.filling import fill
from tests.support.reading import assert_same_contents, push_all, read_everything

pytestmark = [pytest.mark.interop, pytest.mark.timeout(300)]  # a first run fetches jars


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
        for queue in java.read_queues(names.namesrv, topic):
            assert java.committed(names.namesrv, group, queue) == java.offsets(names.namesrv, queue).max
        java.release(names.namesrv)
    finally:
        second.kill()
        names.kill()
