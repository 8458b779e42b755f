"""One problem that `doctor` found."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Literal


@dataclass(frozen=True)
class Diagnosis:
    level: Literal["error", "warning"]
    where: str
    problem: str
    advice: str
