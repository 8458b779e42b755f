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

SIDES = ("apache", "ours", "our proxy", "our proxy with accounts")
WITH_ACCOUNTS = ("apache", "ours", "our proxy with accounts")
OURS = ("ours", "our proxy")
_ON: dict[str, tuple[str, ...]] = {}


def case(run: Run) -> Run:
    """A case: its function's name is what must hold."""
    return case_on("apache", *OURS)(run)


def case_on(*sides: str) -> Callable[[Run], Run]:
    """A case for some fronts alone."""

    def add(run: Run) -> Run:
        name = getattr(run, "__name__", "")
        assert name not in CASES, name
        CASES[name], _ON[name] = run, sides
        return run

    return add


def pairs() -> list[tuple[str, str]]:
    """Each front with each of its cases."""
    return [(side, name) for side in SIDES for name in sorted(CASES) if side in _ON[name]]


from tests.grpc_front.cases import accounts, introducing, receiving, renewing, retrying, sending, transactions  # noqa: E402, F401
