"""Answers to sends that wait: they are ready, and leave when disk and replicas have the messages.

They say that all went well. When that turns out not to be so, each is made anew to say what happened instead, as the general
path would have said it (`handlers/send.py`).
"""

from __future__ import annotations

from collections.abc import Sequence
from functools import partial
from typing import TYPE_CHECKING

from rocketline.broker.durability import Durability, Durable, Outcome
from rocketline.broker.handlers.send import LATE_CODES, LATE_REMARKS
from rocketline.errors import StoreError
from rocketline.protocol.codes import ResponseCode
from rocketline.protocol.connection import Connection, frame_bytes
from rocketline.transport import Channel

if TYPE_CHECKING:
    from rocketline.broker.fastpath.grants import Read

MAX_WAITING = 8192
"""Reads whose answers wait; beyond it the general path counts what waits by connection."""


class LateAnswers:
    def __init__(self, durability: Durability) -> None:
        self._durability = durability
        self._count = 0

    @property
    def are_many(self) -> bool:
        return self._count >= MAX_WAITING

    def keep(
        self,
        reads: Sequence[Read],
        answers: Sequence[bytes | None],
        next_log_offset: int,
        codes: Sequence[tuple[int, int]],
    ) -> list[bytes | None]:
        """Keep the answers to some reads until everything below an offset is where it must be; returns what is to be written
        now.

        `codes` are the codes of the requests, with how many of each there are.
        """
        kept = [(read[2], found) for read, found in zip(reads, answers) if found is not None]
        for channel, _ in kept:
            channel.fast.late_answers += 1  # type: ignore[union-attr]
        self._count += len(kept)
        self._durability.tell(next_log_offset, partial(self._settle, kept, codes, kept[0][0].router.began))
        return [None if found is None else b"" for found in answers]

    def _settle(
        self,
        kept: Sequence[tuple[Channel, bytes]],
        codes: Sequence[tuple[int, int]],
        began: float,
        outcome: Outcome,
    ) -> None:
        response = _code_of(outcome)
        first = kept[0][0]
        for code, count in codes:
            if count:
                first.router.note_served(first, code, response, count, began)
        self._count -= len(kept)
        for channel, answers in kept:
            channel.fast.late_answers -= 1  # type: ignore[union-attr]
            channel.write(answers if outcome is Durable.YES else instead(answers, outcome))


def instead(answers: bytes, outcome: Outcome) -> bytes:
    """What is said of messages that are stored, but not where they must be: not in time, or never."""
    frames: list[bytes] = []
    for answer in Connection().receive(answers):
        answer.code = _code_of(outcome)
        if isinstance(outcome, StoreError):
            answer.ext, answer.remark = {}, str(outcome)
        else:
            answer.remark = LATE_REMARKS[LATE_CODES[outcome]]
        frames.append(frame_bytes(answer))
    return b"".join(frames)


def _code_of(outcome: Outcome) -> ResponseCode:
    if isinstance(outcome, StoreError):
        return ResponseCode.SERVICE_NOT_AVAILABLE
    return LATE_CODES[outcome]
