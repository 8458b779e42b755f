"""Whether a master may give out what needs no replica's word: messages that are readable, queue locks, pops, offsets.

In a group with elections it needs a lease: two masters of one name must never both do so. And after a hand-over it waits
until those in sync have said that they have all that its log had then, because that is readable already.
"""

from __future__ import annotations

from collections.abc import Callable

LEASE_OVER = "this broker has not heard from the coordinator of its group for too long to act as master"
NOT_SETTLED = "the members in sync have not said yet how much of the log they have"
FAR_FUTURE_S = float("inf")
LONG_AGO_S = float("-inf")


class Giving:
    """A master's part; with fixed roles it always may."""

    def __init__(self, monotonic: Callable[[], float], confirmed: Callable[[], int], *, needs_lease: bool) -> None:
        self._monotonic = monotonic
        self._confirmed = confirmed
        self._no_lease = LONG_AGO_S if needs_lease else FAR_FUTURE_S
        self._lease_until = self._no_lease
        self._inherited_end = 0
        """What the log had at the election, until all of it is confirmed; 0 from then on."""

    def hold_lease(self, until: float) -> None:
        """Until this monotonic time."""
        self._lease_until = until

    def end_lease(self) -> None:
        self._lease_until = self._no_lease

    def inherit(self, log_end: int) -> None:
        """A mastership begins with a log that ends here."""
        self._inherited_end = log_end

    @property
    def why_not(self) -> str:
        """Empty: it may."""
        if self._monotonic() >= self._lease_until:
            return LEASE_OVER
        if self._inherited_end and self._confirmed() >= self._inherited_end:
            self._inherited_end = 0
        return NOT_SETTLED if self._inherited_end else ""
