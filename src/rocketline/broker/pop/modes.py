"""How groups read topics, by pulling or by popping, kept in config/messageRequestMode.json; and who shares which
queues.

A client that lets the broker share queues out asks (400) and is told queues and mode. In pop mode a queue may have
several readers: a member gets its own share and those of the next members, or all queues, then written as one entry per
broker with the queue -1. Everything here is a function of sorted lists, so that all members' answers fit together.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from functools import partial

from rocketline.async_table import AsyncTable, OffLoop, Saving
from rocketline.broker.config import PopConfig
from rocketline.broker.tables.json_table import JsonTable
from rocketline.message import RETRY_PREFIX, MessageQueue
from rocketline.protocol.bodies import POP, PULL, MessageRequestModeTable, SetMessageRequestModeRequestBody
from rocketline.protocol.headers.pop import ANY_QUEUE

Strategy = Callable[[int, int, Sequence[MessageQueue]], list[MessageQueue]]
"""(index of a member, how many there are, all queues) -> its queues"""


class RequestModes:
    def __init__(
        self, file: JsonTable[MessageRequestModeTable], config: PopConfig, off_loop: OffLoop | None = None
    ) -> None:
        self._file = file
        self._kept = AsyncTable(file, MessageRequestModeTable({}), self._use, off_loop)
        self._config = config
        self.table: dict[str, dict[str, SetMessageRequestModeRequestBody]] = {}

    def load(self) -> None:
        self._kept.begin(self._file.load() or MessageRequestModeTable({}), is_saved=True)

    def _use(self, content: MessageRequestModeTable) -> None:
        self.table = content.message_request_mode_map

    def put(self, mode: SetMessageRequestModeRequestBody) -> Saving:
        """Saved before it counts: a change that the disk refuses has not happened."""
        return self._kept.change_saved(partial(_with_mode, mode))

    def follow(self, master: MessageRequestModeTable) -> None:
        """Have the modes of a master."""
        if master.message_request_mode_map != self.table:
            self._kept.change(lambda _: master)

    def get(self, topic: str, group: str) -> SetMessageRequestModeRequestBody:
        """What was set, or what holds when nothing was."""
        known = self.table.get(topic, {}).get(group)
        if known is not None:
            return known
        mode = PULL if topic.startswith(RETRY_PREFIX) else self._config.request_mode
        share = self._config.share_queue_count if mode == POP else 0
        return SetMessageRequestModeRequestBody(topic, group, mode, share)


def _with_mode(mode: SetMessageRequestModeRequestBody, former: MessageRequestModeTable) -> MessageRequestModeTable:
    table = former.message_request_mode_map
    return MessageRequestModeTable(table | {mode.topic: table.get(mode.topic, {}) | {mode.consumer_group: mode}})


def averagely(index: int, member_count: int, queues: Sequence[MessageQueue]) -> list[MessageQueue]:
    """RocketMQ's AVG: neighbouring queues, the first members one more when it does not divide evenly."""
    share, extra = divmod(len(queues), member_count)
    start = index * share + min(index, extra)
    return list(queues[start : start + share + (index < extra)])


def by_circle(index: int, member_count: int, queues: Sequence[MessageQueue]) -> list[MessageQueue]:
    """RocketMQ's AVG_BY_CIRCLE: dealt out like cards."""
    return list(queues[index::member_count])


STRATEGIES: dict[str, Strategy] = {"AVG": averagely, "AVG_BY_CIRCLE": by_circle}


def share_out(
    mode: SetMessageRequestModeRequestBody,
    strategy: Strategy,
    client_id: str,
    client_ids: list[str],
    queues: list[MessageQueue],
) -> list[MessageQueue]:
    """The queues of one member; none when it is not a member."""
    shared = mode.pop_share_queue_num
    count = len(client_ids)
    if mode.mode == POP and (shared <= 0 or shared >= count - 1):
        return list(dict.fromkeys(MessageQueue(queue.topic, queue.broker_name, ANY_QUEUE) for queue in queues))
    if client_id not in client_ids or not queues:
        return []
    index = client_ids.index(client_id)
    if mode.mode != POP:
        return strategy(index, count, queues)
    if count > len(queues):
        return [queues[index % len(queues)]]
    members = [(index + step) % count for step in range(shared + 1)]
    return [queue for member in members for queue in strategy(member, count, queues)]
