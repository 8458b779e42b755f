"""What connections may keep in memory before a request of theirs has passed the guard."""

from __future__ import annotations

import pytest

from rocketline.transport import limits
from rocketline.transport.limits import Strangers


class Peer:
    remote = "192.0.2.1:5000"

    def __init__(self) -> None:
        self.is_closed = False

    def abort(self) -> None:
        self.is_closed = True


def test_the_largest_makes_room(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(limits, "MAX_UNFINISHED_BYTES", 100_000)
    peers, pool = [Peer() for _ in range(4)], Strangers(1 << 20)
    for peer, size in zip(peers, (30_000, 50_000, 4_096, 20_000)):
        pool.note(peer, size)
    assert not any(peer.is_closed for peer in peers)  # the smallest is not counted
    pool.note(peers[0], 40_000)
    assert [peer.is_closed for peer in peers] == [False, True, False, False]
    pool.note(peers[3], 0)  # its frame is complete
    pool.forget(peers[0])  # it is known now
    pool.note(peers[2], 100_000)
    assert [peer.is_closed for peer in peers] == [False, True, False, False]
