"""Intervals and time limits of the background work of clients.

The defaults are RocketMQ's. Tests shrink them; users seldom touch them.
"""

from __future__ import annotations

from dataclasses import dataclass, fields

from rocketline.errors import ConfigError
from rocketline.settings import setting


@dataclass(frozen=True)
class ClientTiming:
    """Intervals, delays and time limits of a client, all in seconds."""

    route_refresh_s: float = setting(30.0, "pollNameServerInterval", "Pause between two refreshes of all routes.")
    heartbeat_s: float = setting(30.0, "heartbeatBrokerInterval", "Pause between two heartbeats to all brokers.")
    persist_s: float = setting(5.0, "persistConsumerOffsetInterval", "Pause between two commits of all offsets.")
    rebalance_s: float = setting(20.0, "rocketmq.client.rebalance.waitInterval", "Pause between two rebalances.")
    rebalance_soon_s: float = setting(
        1.0,
        "rocketmq.client.rebalance.minInterval",
        "Pause after a round that could not finish, then doubled; and longest between two in a burst of news.",
    )
    call_s: float = setting(3.0, "mqClientApiTimeout", "Time limit of a call to a name server or broker.")
    next_server_s: float = setting(0.5, None, "Silence of one name server after which the next is asked as well.")
    send_again_s: float = setting(
        0.05, None, "First wait before a send is tried again on the same broker; then doubled."
    )
    probe_s: float = setting(2.0, "detectInterval", "Pause between two looks whether lost brokers are back, if probed.")
    probe_call_s: float = setting(0.2, "detectTimeout", "Time limit of such a look at one broker.")
    send_back_s: float = setting(5.0, None, "Time limit for handing one failed message back to its broker.")
    retry_here_s: float = setting(5.0, None, "Wait before a message that could not be handed back is tried again here.")
    pull_retry_s: float = setting(1.0, "pullTimeDelayMillsWhenException", "Wait after a pull that failed.")
    pull_busy_s: float = setting(0.02, None, "Wait after a pull that the broker refused to control its flow.")
    pull_recheck_s: float = setting(0.05, None, "Longest wait before a queue over its thresholds is looked at again.")
    trace_s: float = setting(5.0, None, "Longest that a message trace waits for others to be sent with.")
    trace_send_s: float = setting(5.0, None, "Time limit for sending message traces, also while a client closes.")
    pull_idle_s: float = setting(
        120.0, "rocketmq.client.pull.pullMaxIdleTime", "A queue not asked for this long is dropped and taken anew."
    )
    lock_s: float = setting(
        20.0, "rocketmq.client.rebalance.lockInterval", "Pause between two renewals of queue locks."
    )
    lock_valid_s: float = setting(
        30.0, "rocketmq.client.rebalance.lockMaxLiveTime", "How long a queue lock counts after it was asked for."
    )
    lock_retry_s: float = setting(1.0, None, "Pause after a renewal of queue locks that failed.")
    lock_call_s: float = setting(1.0, None, "Time limit for locking or unlocking queues at one broker.")
    unlock_wait_s: float = setting(
        0.5, None, "How long a rebalance waits for the running calls of a queue that leaves."
    )
    hand_over_s: float = setting(
        3.0, None, "How long a queue that goes to another member waits for handlers at work on its messages."
    )
    turn_s: float = setting(
        60.0, "rocketmq.client.maxTimeConsumeContinuously", "Longest turn of one queue, if messages are in order."
    )
    consume_timeout_s: float = setting(
        15 * 60.0, "consumeTimeout", "Longest that a handler may take, before its message is handed back to the broker."
    )
    stop_s: float = setting(
        10.0, "awaitTerminationMillisWhenShutdown", "How long running handlers may go on when a push consumer closes."
    )
    unregister_s: float = setting(1.0, None, "Time limit for unregistering from one broker.")

    def __post_init__(self) -> None:
        for item in fields(self):
            value = getattr(self, item.name)
            if value <= 0:
                raise ConfigError(f"{item.name}={value!r}: a time above 0 is needed")
