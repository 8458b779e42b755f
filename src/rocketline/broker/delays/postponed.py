"""Messages that are to be delivered later: by the timer wheel, or by a delay level."""

from __future__ import annotations

from rocketline.broker.delays.delay_levels import DelayLevels
from rocketline.broker.timer.redirect import TIMER_TOPIC, is_timer
from rocketline.broker.timer.timers import Timers
from rocketline.message import DELAY
from rocketline.store.message_store import StoreMessage


def postpone(message: StoreMessage, timers: Timers, delays: DelayLevels) -> None:
    """Send a message on the detour that its properties ask for, if any; RequestRejected when that cannot be."""
    properties = message.properties
    if is_timer(properties):
        timers.redirect(message)
    level = properties.get(DELAY)
    if level is not None and message.topic != TIMER_TOPIC:
        delays.redirect(message, level)
