"""Checks messages with a delivery time and redirects them to the timer queue.

The first of TIMER_DELAY_SEC, TIMER_DELAY_MS and TIMER_DELIVER_MS is the time; a time in the past means at once. The
message is stored on rmq_sys_wheel_timer with its real topic and queue in its properties and the step before its time in
TIMER_OUT_MS: a step is delivered when it is over, so nothing is ever early.
"""

from __future__ import annotations

from collections.abc import Callable
from random import Random

from rocketline.broker.detours import send_on_detour
from rocketline.clock import Clock
from rocketline.errors import RequestRejected
from rocketline.message import (
    DELAY,
    REAL_TOPIC,
    RETRY_PREFIX,
    TIMER_DELAY_MS,
    TIMER_DELAY_SEC,
    TIMER_DELIVER_MS,
    UNIQ_KEY,
)
from rocketline.protocol.codes import ResponseCode
from rocketline.protocol.numbers import MAX_INT64, read_number
from rocketline.protocol.recall import RecallHandle
from rocketline.store.config import TimerConfig
from rocketline.store.message_store import StoreMessage

TIMER_TOPIC = "rmq_sys_wheel_timer"
TIMER_OUT_MS = "TIMER_OUT_MS"
TIMER_DEL_UNIQKEY = "TIMER_DEL_UNIQKEY"

ADDED_LATER_BYTES = 128
"""Room for what delivery, and going round again, add to the properties."""
_MAX_MS = (1 << 63) - 1


def is_timer(properties: dict[str, str]) -> bool:
    return TIMER_DELAY_MS in properties or TIMER_DELIVER_MS in properties or TIMER_DELAY_SEC in properties


class TimerRedirect:
    def __init__(self, config: TimerConfig, clock: Clock, random: Random, count_at: Callable[[int], int]) -> None:
        self._config = config
        self._clock = clock
        self._random = random
        self._count_at = count_at

    def redirect(self, message: StoreMessage) -> None:
        """Redirect a timer message whose time is to come to the timer topic; RequestRejected when it is not valid."""
        properties = message.properties
        if message.topic == TIMER_TOPIC or TIMER_OUT_MS in properties:
            return
        if _level(properties) > 0:
            # A delay level overrides a time. Its redirection, which comes next, encodes the properties again.
            for name in (TIMER_DELAY_SEC, TIMER_DELAY_MS, TIMER_DELIVER_MS):
                properties.pop(name, None)
            return
        if not self._config.enabled:
            raise RequestRejected(
                ResponseCode.SYSTEM_ERROR, "accurate timer message is not enabled, timerWheelEnable is false"
            )
        now_ms = self._clock.now_ms()
        deliver_ms = self._deliver_ms(properties, now_ms)
        if deliver_ms > now_ms:
            self._redirect_to(message, self._slot_ms(deliver_ms))
        elif TIMER_DEL_UNIQKEY in properties:
            raise self._illegal()

    def _deliver_ms(self, properties: dict[str, str], now_ms: int) -> int:
        seconds, millis = properties.get(TIMER_DELAY_SEC), properties.get(TIMER_DELAY_MS)
        if seconds is not None:
            text, unit_ms, since_ms = seconds, 1000, now_ms
        elif millis is not None:
            text, unit_ms, since_ms = millis, 1, now_ms
        else:
            text, unit_ms, since_ms = properties[TIMER_DELIVER_MS], 1, 0
        number = read_number(text, lowest=-MAX_INT64)
        if number is None or since_ms + number * unit_ms > now_ms + self._config.max_delay_s * 1000:
            raise self._illegal()
        return since_ms + number * unit_ms

    def _slot_ms(self, deliver_ms: int) -> int:
        slot_ms = (deliver_ms - 1) // self._config.precision_ms * self._config.precision_ms
        limit = self._config.congested_count
        waiting = self._count_at(slot_ms)
        if waiting > limit and (waiting >= 2 * limit or self._random.random() < (waiting - limit) / limit):
            raise RequestRejected(
                ResponseCode.SYSTEM_ERROR,
                f"timer message is under flow control, max num limit is {2 * limit} or the current value is greater than "
                f"{limit} and less than {2 * limit}, trigger random flow control",
            )
        return slot_ms

    def _redirect_to(self, message: StoreMessage, slot_ms: int) -> None:
        message.properties[TIMER_OUT_MS] = str(slot_ms)
        send_on_detour(message, TIMER_TOPIC, 0, ADDED_LATER_BYTES)

    def _illegal(self) -> RequestRejected:
        return RequestRejected(
            ResponseCode.MESSAGE_ILLEGAL,
            "timer message illegal, the delay time should not be bigger than the max delay "
            f"{self._config.max_delay_s * 1000}ms; or if set del msg, the delay time should be bigger than the current time",
        )


def recall_handle(broker_name: str, properties: dict[str, str]) -> str | None:
    """The handle with which the sender recalls a redirected message; None for retries, which cannot be recalled."""
    topic = properties.get(REAL_TOPIC, RETRY_PREFIX)
    if topic.startswith(RETRY_PREFIX):
        return None
    # One more: rounded down to a step again, it gives the same step.
    return RecallHandle(topic, broker_name, int(properties[TIMER_OUT_MS]) + 1, properties[UNIQ_KEY]).encode()


def _level(properties: dict[str, str]) -> int:
    return read_number(properties.get(DELAY)) or 0
