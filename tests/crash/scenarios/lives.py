"""A store over many lives of its broker: started, loaded, killed, started again, checked."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from pathlib import Path
from random import Random

from ..checker import Checker
from ..child import BrokerChild, DidNotStart
from ..ledger import Ledger
from ..load import GROUP, Load, Mix
from ..outcome import Outcome
from ..plan import Plan

MAX_LIFE_S = 0.3


class Lives:
    def __init__(self, outcome: Outcome, random: Random, mix: Mix | None = None) -> None:
        self.outcome = outcome
        self.random = random
        self.ledger = Ledger()
        self.checker = Checker(self.ledger, GROUP)
        self._mix = mix

    @asynccontextmanager
    async def life(self, plan: Plan) -> AsyncIterator[BrokerChild]:
        """A broker on the store, killed at the end."""
        child = BrokerChild(plan)
        try:
            await child.start()
            self.outcome.opened(child.open_s, child.start_s)
            yield child
        finally:
            child.kill()

    async def load_until_killed(self, child: BrokerChild, most_s: float = MAX_LIFE_S) -> None:
        """Load, and kill -9 at a random moment of it."""
        async with Load(child.address, self.ledger, self.random.getrandbits(32), self._mix) as load:
            await asyncio.sleep(self.random.uniform(0, most_s))
            child.kill()
            await load.producers_end()
        self.outcome.require(not any(load.codes.keys() - {0}), f"a healthy broker refused sends: {load.last_refusal}")

    async def check(self, child: BrokerChild, *, full: bool = False, lossy: bool = False) -> None:
        self.outcome.violations += await self.checker.check(child.address, full=full, lossy=lossy)

    def total(self) -> Outcome:
        outcome = self.outcome
        outcome.acked, outcome.duplicates = self.ledger.ack_count, self.checker.duplicates
        outcome.lost += self.ledger.lost_count
        return outcome


def shadow_of(store: Path) -> str:
    return str(store.with_name(store.name + ".shadow"))


__all__ = ["MAX_LIFE_S", "DidNotStart", "Lives", "shadow_of"]
