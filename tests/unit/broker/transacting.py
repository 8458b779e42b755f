"""A producer with transactions, as the tests of transactions play it, and what lies in the broker's own topics."""

from __future__ import annotations

from dataclasses import dataclass

from tests.unit.broker.parts import Parts, Peer, heartbeat

from rocketline.message import MessageView
from rocketline.protocol.codes import RequestCode, ResponseCode
from rocketline.protocol.command import ONEWAY, Command
from rocketline.protocol.headers import CheckTransactionStateHeader, EndTransactionHeader, SendMessageHeader
from rocketline.protocol.message_ids import parse_offset_id
from rocketline.protocol.properties import encode_properties
from rocketline.protocol.records import decode_message

COMMIT, ROLLBACK, UNKNOWN = 8, 12, 0
HALF, OP, GIVEN_UP = "RMQ_SYS_TRANS_HALF_TOPIC", "RMQ_SYS_TRANS_OP_HALF_TOPIC", "TRANS_CHECK_MAX_TIME_TOPIC"
GROUP = "payers"


@dataclass
class Half:
    """Where a half message was put."""

    unique: str
    queue_offset: int
    log_offset: int


@dataclass
class Question:
    """What a broker wants to know."""

    header: CheckTransactionStateHeader
    message: MessageView

    @property
    def half(self) -> Half:
        return Half(self.message.message_id, self.header.queue_offset, self.header.log_offset)


class Payer:
    """A transactional producer on a connection of its own."""

    def __init__(self, parts: Parts, group: str = GROUP, client_id: str = "client-1", account: str = "") -> None:
        self.parts, self.group = parts, group
        self.peer: Peer = parts.peer(account=account)
        self.peer.ask(heartbeat(client_id, None, producers=(group,)))

    def half_request(self, unique: str, body: bytes = b"pay", queue_id: int = 0, **more: str) -> Command:
        properties = {
            "KEYS": f"k{unique}",
            "TRAN_MSG": "true",
            "UNIQ_KEY": unique,
            "WAIT": "true",
            "PGROUP": self.group,
        }
        header = SendMessageHeader(
            producer_group=self.group,
            topic="orders",
            default_topic="TBW102",
            default_topic_queue_nums=4,
            queue_id=queue_id,
            sys_flag=0x4,
            born_ms=self.parts.clock.now_ms(),
            flag=3,
            properties=encode_properties({**properties, "TAGS": "paid", **more}),
        )
        return Command(RequestCode.SEND_MESSAGE_V2, header.encode(), body)

    def half(self, unique: str, body: bytes = b"pay", queue_id: int = 0, **more: str) -> Half:
        answer = self.peer.ask(self.half_request(unique, body, queue_id, **more))
        assert answer.code == ResponseCode.SUCCESS, answer
        self.parts.dispatch()
        return Half(unique, int(answer.ext["queueOffset"]), parse_offset_id(answer.ext["msgId"])[1])

    def end_request(self, half: Half, outcome: int, *, from_check: bool = False, **changes: object) -> Command:
        fields: dict[str, object] = {
            "producer_group": self.group,
            "queue_offset": half.queue_offset,
            "log_offset": half.log_offset,
            "commit_or_rollback": outcome,
            "msg_id": half.unique,
            "transaction_id": half.unique,
            "from_transaction_check": from_check,
            **changes,
        }
        return Command(RequestCode.END_TRANSACTION, EndTransactionHeader(**fields).encode())  # type: ignore[arg-type]

    def end(self, half: Half, outcome: int, **changes: object) -> Command:
        answer = self.peer.ask(self.end_request(half, outcome, **changes))  # type: ignore[arg-type]
        self.parts.dispatch()
        return answer

    def tell(self, half: Half, outcome: int, **changes: object) -> None:
        """As Java's producers do it: one-way."""
        request = self.end_request(half, outcome, **changes)  # type: ignore[arg-type]
        request.flag |= ONEWAY
        self.peer.send(request)
        assert self.peer.received() == []
        self.parts.dispatch()

    def questions(self) -> list[Question]:
        asked = self.peer.received()
        assert all(command.code == RequestCode.CHECK_TRANSACTION_STATE and command.flag & ONEWAY for command in asked)
        return [
            Question(CheckTransactionStateHeader.decode(command), decode_message(command.body, 0, len(command.body)))
            for command in asked
        ]


async def check_after(parts: Parts, seconds: float) -> None:
    """One round of checks, some time later."""
    parts.clock.advance(seconds)
    parts.dispatch()
    await parts.checker.check()
    parts.dispatch()


def bodies(parts: Parts, topic: str = "orders", queue_id: int = 0) -> list[bytes]:
    return [message.body for message in parts.messages(topic, queue_id)]


def saved_offsets(parts: Parts) -> tuple[int | None, int | None]:
    """Of half messages and of notes."""
    group = "CID_RMQ_SYS_TRANS"
    return parts.offsets.get(group, HALF, 0), parts.offsets.get(group, OP, 0)
