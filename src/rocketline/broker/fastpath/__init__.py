"""The fast path: plain sends and pulls, from the bytes of a read to the bytes of the answers, in compiled code.

Most requests to a broker are sends and pulls about which nothing has to be decided, and many come at once. The fast path
serves those without a decoded request, a handler or an object for each. It decides nothing: where it meets anything that is
not plain it stops, and the general path (`broker/handlers`) goes on from that byte. Both leave the same bytes in the store
and on the wire; `tests/property/test_fast_sends.py`, `test_fast_grants.py` and `test_fast_pulls.py` compare them.

Where the broker asks for accounts, its guard decides who may send what, on the general path; the fast path serves sends of
those whom it let pass, each with its signature. Pulls then take the general path.

Nothing outside imports this package but `broker/handler_wiring.py`. It is off without the compiled module, with
`rocketline.fastPath=false` and with `ROCKETLINE_FAST_PATH=off`; without it everything works, more slowly.

    path.py            what transport sees: gathers the reads of one turn of the loop, serves them together
    sends.py           plain sends: bytes of a read -> records in the log -> answers
    grants.py          with a guard: what connections may send to
    late_answers.py    SYNC_FLUSH: answers that wait for the disk
    pulls.py           plain pulls: a request asked before with other numbers -> slices of the log
    held_pull.py       a pull that waits for messages, without a future or a task
    answers.py         answers with everything filled in but the numbers
"""

from __future__ import annotations

import os
from typing import TYPE_CHECKING

from rocketline._impl import NAME

if TYPE_CHECKING:
    from rocketline.auth.guard import AccessGuard
    from rocketline.broker.fastpath.path import BrokerFastPath
    from rocketline.broker.handlers.pull import PullHandlers
    from rocketline.broker.handlers.send import SendHandlers
    from rocketline.broker.loop_delay import LoopDelay
    from rocketline.transport import Limits


def fast_path_of(
    sends: SendHandlers,
    pulls: PullHandlers,
    limits: Limits,
    loop_delay: LoopDelay | None,
    guard: AccessGuard | None,
) -> BrokerFastPath | None:
    """The fast path beside these handlers; None where everything takes the general path."""
    if NAME != "c" or os.environ.get("ROCKETLINE_FAST_PATH", "") == "off":
        return None
    from rocketline.broker.fastpath.grants import Grants
    from rocketline.broker.fastpath.path import BrokerFastPath
    from rocketline.broker.fastpath.pulls import FastPulls
    from rocketline.broker.fastpath.sends import FastSends

    grants = None if guard is None else Grants(guard, pulls.parts.clock)
    fast_sends = None if sends.parts.store.config.transient_pool else FastSends(sends, limits, loop_delay, grants)
    # The signature of a pull differs each time, so its header is never one that is known.
    without_pulls = pulls.parts.slave_read or not pulls.parts.readable or guard is not None
    fast_pulls = None if without_pulls else FastPulls(pulls, limits)
    return BrokerFastPath(fast_sends, fast_pulls)
