"""Runtime information of a broker (28): a table of texts under Apache's names, all that its tools read.

What does not exist here has the value of an idle Apache broker: there are no thread pools, so their queues are empty, and
the time of a single append is not measured.
"""

from __future__ import annotations

from rocketline.broker.delays.delay_levels import DelayLevels
from rocketline.broker.set_aside import SetAside
from rocketline.broker.statistics.statistics import BrokerStatistics
from rocketline.broker.tables.topics import SCHEDULE_TOPIC
from rocketline.broker.timer.timers import Timers
from rocketline.broker.wiring import wired
from rocketline.clock import Clock
from rocketline.protocol.bodies import KVTable, encode_body
from rocketline.protocol.codes import RequestCode, ResponseCode
from rocketline.protocol.command import Command
from rocketline.protocol.records import decode_record
from rocketline.store.message_store import MessageStore
from rocketline.transport import Channel, Handler, Reply

VERSION_NAME = "V5_4_0"
"""The version whose behaviour is ours, and whose number every frame carries."""

POOL_CAPACITIES = {"send": 10_000, "pull": 100_000, "litePull": 100_000, "query": 20_000, "ack": 100_000}
PUT_TIMES = (
    "[<=0ms]", "[0~10ms]", "[10~50ms]", "[50~100ms]", "[100~200ms]", "[200~500ms]", "[500ms~1s]", "[1~2s]", "[2~3s]",
    "[3~4s]", "[4~5s]", "[5~10s]", "[10s~]",
)  # fmt: skip


@wired
class RuntimeInfoHandlers:
    store: MessageStore
    delays: DelayLevels
    timers: Timers
    statistics: BrokerStatistics
    aside: SetAside
    clock: Clock
    started_ms: int

    def routes(self) -> dict[int, Handler]:
        return {RequestCode.GET_BROKER_RUNTIME_INFO: self.show}

    def show(self, channel: Channel, request: Command) -> Reply:
        table = {**self._counted(), **self._rates(), **self._stored(), **self._delayed(), **_pools()}
        return request.reply(ResponseCode.SUCCESS, body=encode_body(KVTable(table)))

    def _counted(self) -> dict[str, str]:
        totals, history = self.statistics.totals(), self.statistics.history
        running_ms = self.clock.now_ms() - self.started_ms
        return {
            "bootTimestamp": str(self.started_ms),
            "runtime": _duration(running_ms),
            "brokerActive": "true",
            "brokerVersionDesc": VERSION_NAME,
            "startAcceptSendRequestTimeStamp": "0",
            "putMessageTimesTotal": str(max(1, totals.put)),
            "putMessageSizeTotal": str(totals.put_bytes),
            "putMessageAverageSize": str(totals.put_bytes / max(1, totals.put)),
            "putMessageFailedTimes": str(self.statistics.failed),
            "rocketline.setAside": str(self.aside.counts.total()),
            "putMessageEntireTimeMax": "0",
            "putMessageDistributeTime": "".join(f"{name}:0 " for name in PUT_TIMES),
            "putLatency99": "0.00",
            "putLatency999": "0.00",
            "getMessageEntireTimeMax": str(round(self.statistics.slowest_s * 1000)),
            "dispatchMaxBuffer": "0",
            "msgPutTotalYesterdayMorning": str(history.yesterday_morning.put),
            "msgPutTotalTodayMorning": str(history.this_morning.put),
            "msgPutTotalTodayNow": str(totals.put),
            "msgGetTotalYesterdayMorning": str(history.yesterday_morning.got),
            "msgGetTotalTodayMorning": str(history.this_morning.got),
            "msgGetTotalTodayNow": str(totals.got),
        }

    def _rates(self) -> dict[str, str]:
        rates = self.statistics.history.rates
        return {
            "putTps": rates(lambda totals: totals.put),
            "getFoundTps": rates(lambda totals: totals.found),
            "getMissTps": rates(lambda totals: totals.missed),
            "getTotalTps": rates(lambda totals: totals.reads),
            "getTransferredTps": rates(lambda totals: totals.got),
        }

    def _stored(self) -> dict[str, str]:
        store = self.store
        usage = store.disk_usage()
        ratio = str(usage.used_percent / 100)
        return {
            "commitLogDiskRatio": ratio,
            f"commitLogDiskRatio_{store.root / 'commitlog'}": ratio,
            "consumeQueueDiskRatio": ratio,
            "commitLogMinOffset": str(store.log_min_offset),
            "commitLogMaxOffset": str(store.log_next_offset),
            "commitLogDirCapacity": f"Total : {_size(usage.total_bytes)}, Free : {_size(usage.free_bytes)}.",
            "dispatchBehindBytes": str(max(0, store.log_next_offset - store.dispatched_offset)),
            "remainHowManyDataToCommit": _size(max(0, store.log_next_offset - store.committed_offset)),
            "remainHowManyDataToFlush": _size(max(0, store.log_next_offset - store.flushed_offset)),
            "remainTransientStoreBufferNumbs": str(store.free_buffers),
            "pageCacheLockTimeMills": "0",
            "earliestMessageTimeStamp": str(self._earliest_ms()),
        }

    def _earliest_ms(self) -> int:
        record = self.store.record_at(self.store.log_min_offset)
        return decode_record(record, 0, len(record)).store_ms if record is not None else -1

    def _delayed(self) -> dict[str, str]:
        behind_s, to_take_in, waiting = self.timers.backlog()
        table = {
            f"scheduleMessageOffset_{level}": f"{offset},{self.store.max_offset(SCHEDULE_TOPIC, level - 1)}"
            for level, offset in self.delays.snapshot().offset_table.items()
        }
        return table | {
            "timerReadBehind": str(behind_s),
            "timerOffsetBehind": str(to_take_in),
            "timerCongestNum": str(waiting),
            "timerEnqueueTps": "0.0",
            "timerDequeueTps": "0.0",
        }


def _pools() -> dict[str, str]:
    table = {"EndTransactionQueueSize": "0", "EndTransactionThreadPoolQueueCapacity": "100000"}
    for name, capacity in POOL_CAPACITIES.items():
        table[f"{name}ThreadPoolQueueSize"] = "0"
        table[f"{name}ThreadPoolQueueCapacity"] = str(capacity)
        table[f"{name}ThreadPoolQueueHeadWaitTimeMills"] = "0"
    return table


def _duration(ms: int) -> str:
    """
    >>> _duration(90_061_000)
    '[ 1 days, 1 hours, 1 minutes, 1 seconds ]'
    """
    minutes, seconds = divmod(max(0, ms) // 1000, 60)
    hours, minutes = divmod(minutes, 60)
    days, hours = divmod(hours, 24)
    return f"[ {days} days, {hours} hours, {minutes} minutes, {seconds} seconds ]"


def _size(count: int) -> str:
    """
    >>> _size(512), _size(1536)
    ('512 B', '1.5 KiB')
    """
    power = min(max(0, count.bit_length() - 1) // 10, 6)
    return f"{count / (1 << 10 * power):.1f} {'KMGTPE'[power - 1]}iB" if power else f"{count} B"
