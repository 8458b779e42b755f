"""What a scenario found: counts, the worst times, and every violation in words."""

from __future__ import annotations

from dataclasses import dataclass, field


@dataclass
class Outcome:
    """Of one work item: a scenario in one variant with one seed."""

    scenario: str
    variant: str
    seed: int
    runs: int = 0
    acked: int = 0
    lost: int = 0
    """Acknowledged and gone. Only a mode that says so may lose."""
    duplicates: int = 0
    """Messages found twice because their sender, left without an answer, sent them again."""
    worst_open_s: float = 0.0
    """The longest a store took to open."""
    worst_start_s: float = 0.0
    """The longest a process took from its start to serving."""
    violations: list[str] = field(default_factory=list)
    notes: dict[str, list[float]] = field(default_factory=dict)
    """All values of whatever else was measured."""
    impl: str = "python"
    """Which implementation ran: `python`, or `c` for compiled code."""

    def note(self, name: str, value: float) -> None:
        self.notes.setdefault(name, []).append(value)

    def require(self, is_so: bool, otherwise: str) -> None:
        if not is_so:
            self.violations.append(otherwise)

    def opened(self, open_s: float, start_s: float) -> None:
        self.worst_open_s = max(self.worst_open_s, open_s)
        self.worst_start_s = max(self.worst_start_s, start_s)

    def __str__(self) -> str:
        shown = "".join(f"\n    {text}" for text in self.violations[:12])
        return (
            f"{self.scenario} {self.variant} seed {self.seed}: {self.runs} runs, {self.acked} acknowledged, "
            f"{self.lost} lost, {self.duplicates} twice, {len(self.violations)} violations{shown}"
        )
