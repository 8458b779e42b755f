"""Answers to sends that were taken together under SYNC_FLUSH: they are ready, and leave when the disk has the messages.

They say that all went well. When that turns out not to be so, each is made anew to say what happened instead, as the general
road would have said it (`handlers/send.py`).
"""

from __future__ import annotations

from collections.abc import Callable
from functools import partial

from rocketline.broker.durability import Durability, Durable, Outcome
from rocketline.errors import StoreError
from rocketline.protocol.codes import ResponseCode
from rocketline.protocol.connection import Connection, frame_bytes
from rocketline.transport import Channel, Read

MAX_KEPT = 8192
"""Answers of reads; with more the general road counts what waits by connection."""

NOT_IN_TIME = "not flushed to disk in time"


class WaitingAnswers:
    def __init__(self, durability: Durability) -> None:
        self._durability = durability
        self._count = 0

    @property
    def are_many(self) -> bool:
        return self._count >= MAX_KEPT

    def keep(
        self, reads: list[Read], answers: list[bytes | None], next_log_offset: int, sends: int, batches: int
    ) -> list[bytes | None]:
        """Keep the answers to some reads until everything below an offset is on disk; returns what is to be written now."""
        kept = [(read[2], found) for read, found in zip(reads, answers) if found is not None]
        answered = kept[0][0].router.await_answers(kept[0][0], sends, batches)
        for channel, _ in kept:
            channel.kept_answers += 1
        self._count += len(kept)
        self._durability.tell(next_log_offset, partial(self._settle, kept, answered))
        return [None if found is None else b"" for found in answers]

    def _settle(self, kept: list[tuple[Channel, bytes]], answered: Callable[[int], None], outcome: Outcome) -> None:
        answered(_code_of(outcome))
        self._count -= len(kept)
        for channel, answers in kept:
            channel.kept_answers -= 1
            channel.write(answers if outcome is Durable.YES else instead(answers, outcome))


def instead(answers: bytes, outcome: Outcome) -> bytes:
    """What is said of messages that are stored, but not on disk: not in time, or never."""
    frames: list[bytes] = []
    for answer in Connection().receive(answers):
        answer.code = _code_of(outcome)
        if isinstance(outcome, StoreError):
            answer.ext, answer.remark = {}, str(outcome)
        else:
            answer.remark = NOT_IN_TIME
        frames.append(frame_bytes(answer))
    return b"".join(frames)


def _code_of(outcome: Outcome) -> ResponseCode:
    if isinstance(outcome, StoreError):
        return ResponseCode.SERVICE_NOT_AVAILABLE
    return ResponseCode.SUCCESS if outcome is Durable.YES else ResponseCode.FLUSH_DISK_TIMEOUT
