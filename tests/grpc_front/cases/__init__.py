"""Cases that a gRPC front must pass. Each is run on ours and on Apache's proxy, with the same expectation; where ours is
meant to be better, the case says so.

Most cases wait for seconds, so all cases of a front run at the same time: `conftest.py` starts them, `test_conformance.py`
shows how each ended.
"""

from __future__ import annotations

from collections.abc import Awaitable, Callable

from tests.support.grpc_front import Front

Run = Callable[[Front], Awaitable[None]]

CASES: dict[str, Run] = {}
"""By name, in the order of the modules."""


def case(run: Run) -> Run:
    """A case: its function's name is what must hold."""
    name = getattr(run, "__name__", "")
    assert name not in CASES, name
    CASES[name] = run
    return run


from tests.grpc_front.cases import accounts, introducing, receiving, renewing, retrying, sending, transactions  # noqa: E402, F401
