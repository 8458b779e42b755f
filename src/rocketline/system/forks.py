"""Work to do in a forked child. Windows has no `fork`, so there is nothing to do there."""

from __future__ import annotations

import os
from collections.abc import Callable


def in_forked_child(work: Callable[[], None]) -> None:
    """Have `work` called in every child that this process forks, before anything else runs there."""
    if hasattr(os, "register_at_fork"):
        os.register_at_fork(after_in_child=work)
