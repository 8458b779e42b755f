"""All exceptions that rocketline raises, as one tree.

    RocketlineError
      ProtocolError       LocalProtocolError (we broke the rules), RemoteProtocolError (the peer did)
      TransportError      ConnectFailed (TlsFailed) and ConnectionLost (also ConnectionError), RequestTimeout (also
                          TimeoutError)
      BrokerError         an answer that is not a success: .code .remark .address; subclasses for codes worth catching
      ClientError         RouteNotFound, MessageTooLarge, InvalidMessage, InvalidExpression, InvalidReceipt (ReceiptExpired,
                          ReceiptUsed), AcksFailed, ProducerClosed, ConsumerClosed, SendFailed,
                          RangeNotAvailable, NoReply (also TimeoutError)
      StoreError          CorruptRecord, DiskFull, FlushFailed, StoreBusy, StoreInUse, StoreClosed, StoreReadOnly, WrongFiles
      Unstorable          a message that the store will never take as it is
      FilterFailed        a filter cannot be evaluated on a message, which then does not match
      RequestRejected     raised by our own handlers; the router turns it into an answer
      CoordinationFailed  the place that keeps a group's record (etcd) did not answer, or refused
      ConfigError
      ProcessFailed       a broker in a process of its own could not start, ended unexpectedly, or did not stop

Expected outcomes, such as an offset out of range, are values and not exceptions.
"""

from __future__ import annotations

import re
import struct
from collections.abc import Mapping


class RocketlineError(Exception):
    """Base of all exceptions of rocketline."""


class ProtocolError(RocketlineError):
    """Bytes or calls that break the remoting protocol."""


class LocalProtocolError(ProtocolError):
    """Our side tried to do something the protocol does not allow."""


class RemoteProtocolError(ProtocolError):
    """The peer sent something the protocol does not allow."""


class TransportError(RocketlineError):
    """The network failed; there is no answer of a broker."""


class ConnectFailed(TransportError, ConnectionError):
    """No connection could be made, so nothing was sent; a later attempt may succeed."""


class TlsFailed(ConnectFailed):
    """The TLS handshake failed, and a retry would fail too: a certificate or a setting is wrong."""


class ClientClosed(ConnectFailed):
    """This client makes no connections any more: it was closed, or opened before a fork."""


class ConnectionLost(TransportError, ConnectionError):
    """The connection was lost while waiting for an answer."""


class RequestTimeout(TransportError, TimeoutError):
    """No answer came in time. The request may or may not have been carried out."""


class BrokerError(RocketlineError):
    """A broker or name server answered with a failure code."""

    code: int
    remark: str
    address: str

    def __init__(self, code: int, remark: str | None, address: str = "", doing: str = "") -> None:
        self.code = code
        self.remark = remark or ""
        self.address = address
        where = f" from {address}" if address else ""
        what = f"{doing}: " if doing else ""
        super().__init__(f"{what}answer {code}{where}: {self.remark or 'no reason given'}{self.hint}")

    @property
    def hint(self) -> str:
        """Advice at the end of the text; empty when there is none."""
        return ""

    @property
    def retryable(self) -> bool:
        """Whether a producer may try the same message on another broker (codes as in RocketMQ 5)."""
        return self.code in RETRYABLE_CODES

    @property
    def may_lack_role(self) -> bool:
        """Whether this may be the answer of a broker that is not the master of its group, or not any more. It stored
        nothing, and another one may lead already. Apache's replicas say it as a master that is busy does."""
        if self.code == 14:
            return _ROLE.search(self.remark) is not None
        return self.code == 11 or (self.code == 2 and self.remark.startswith("[REJECTREQUEST]"))

    @staticmethod
    def of(code: int, remark: str | None, address: str = "", doing: str = "") -> BrokerError:
        """The most specific class for a response code."""
        kind = _BROKER_ERRORS.get(code, BrokerError)
        if code == SYSTEM_ERROR and _OLD_ACL.search(remark or ""):
            kind = NoPermission
        return kind(code, remark, address, doing)


class SystemBusy(BrokerError):
    """Code 2: the broker asks to slow down."""


class RequestNotSupported(BrokerError):
    """Code 3: the peer does not know this request."""


class MessageIllegal(BrokerError):
    """Code 13: body or properties too large, or otherwise refused."""


class ServiceNotAvailable(BrokerError):
    """Code 14: read-only, shutting down or disk full."""


class NoPermission(BrokerError):
    """Code 16, or 1 from an ACL of RocketMQ 4: the topic, group or credentials do not allow it."""

    @property
    def retryable(self) -> bool:
        """A refused account is told at once: more attempts would only hide the reason behind a longer wait."""
        return super().retryable and not self.concerns_account

    @property
    def concerns_account(self) -> bool:
        """Whether the credentials are the cause, judged by the remark."""
        return _ACL.search(self.remark) is not None

    @property
    def hint(self) -> str:
        if not self.concerns_account:
            return ""
        end = "" if self.remark.endswith(".") else "."
        if _NO_ACCOUNT.search(self.remark):
            return (
                f"{end} Hint: check the credentials of this client, it gave none: Credentials(access_key, secret_key)"
            )
        return (
            f"{end} Hint: check the credentials of this client, access key and secret key, and what the account may do"
        )


class TopicNotExist(BrokerError):
    """Code 17."""


class QueryNotFound(BrokerError):
    """Code 22: nothing stored under that key, group or offset."""


class SubscriptionNotExist(BrokerError):
    """Code 24: no heartbeat with this subscription arrived yet."""


class GroupNotExist(BrokerError):
    """Code 26."""


class InvalidParameter(BrokerError):
    """Code 29."""


class ConsumerNotOnline(BrokerError):
    """Code 206."""


class NoMessage(BrokerError):
    """Code 208: nothing is stored where a receipt handle points."""


class FlowControl(BrokerError):
    """Code 215."""


SYSTEM_ERROR = 1
_OLD_ACL = re.compile(r"AclException|acl\.common|accessKey", re.IGNORECASE)
_ACL = re.compile(
    r"acl|access ?key|signature|authenti|authoriz|credential|permission to access|username|^User:", re.IGNORECASE
)
_NO_ACCOUNT = re.compile(r"username cannot be null|no access ?key", re.IGNORECASE)
"""Patterns of the remarks of the ACLs of 4.9 and 5.x; a refusal because of a topic's permission has none of these words."""

_ROLE = re.compile(r"\b(master|slave)\b")
"""In the remarks of code 14: a full disk is one too."""
RETRYABLE_CODES = frozenset({1, 2, 14, 16, 17, 204, 205, 1500})

_BROKER_ERRORS: dict[int, type[BrokerError]] = {
    2: SystemBusy,
    3: RequestNotSupported,
    13: MessageIllegal,
    14: ServiceNotAvailable,
    16: NoPermission,
    17: TopicNotExist,
    22: QueryNotFound,
    24: SubscriptionNotExist,
    26: GroupNotExist,
    29: InvalidParameter,
    206: ConsumerNotOnline,
    208: NoMessage,
    215: FlowControl,
}


class ClientError(RocketlineError):
    """A client could not do what was asked, for a reason other than one answer of a broker."""


class RouteNotFound(ClientError):
    """No name server knows a broker that has the topic."""


class NoNameServer(RouteNotFound):
    """No name server could be reached: it may be back soon."""


class NoMaster(RouteNotFound, ConnectFailed):
    """The brokers of a topic are known, and none that could take the message has a master now: there may be one soon."""


class InvalidMessage(ClientError, ValueError):
    """A message, name or option that no broker would accept; nothing was sent."""


class InvalidBody(InvalidMessage, TypeError):
    """A body that is not bytes and that no serializer made bytes of; nothing was sent."""


class UnreadableBody(ClientError, ValueError):
    """A deserializer cannot read the body of a message; the text names the message, its topic and the type."""


class MessageTooLarge(InvalidMessage):
    """The body is over the size limit; nothing was sent."""


class InvalidExpression(InvalidMessage):
    """A filter expression that cannot be compiled; `position` counts characters from 0, None stands for the whole text."""

    def __init__(self, text: str, position: int | None = None) -> None:
        self.position = position
        super().__init__(text)


class InvalidReceipt(InvalidMessage):
    """A receipt handle that cannot be used here; nothing was sent for it."""


class ReceiptExpired(InvalidReceipt):
    """The invisible time of a receipt handle is over: its message is, or was, delivered again."""


class ReceiptUsed(InvalidReceipt):
    """A receipt handle that was already acknowledged, given back, or replaced by an extension."""


class AcksFailed(ClientError):
    """Some messages of a batch could not be acknowledged: .failures has the reasons by receipt handle."""

    def __init__(self, failures: Mapping[str, RocketlineError], count: int) -> None:
        self.failures = dict(failures)
        first = next(iter(self.failures.values()))
        super().__init__(f"{len(self.failures)} of {count} messages were not acknowledged; the first: {first}")


class SendFailed(ClientError):
    """Every attempt to send failed; the last cause is chained."""


class NoReply(ClientError, TimeoutError):
    """No reply to a request came in time. The request may or may not have been handled."""


class ProducerClosed(ClientError):
    """The producer is not running."""


class ConsumerClosed(ClientError):
    """The consumer is not running."""


class RangeNotAvailable(ClientError):
    """A queue has these offsets no longer, or not yet; .available_offset is its first offset after them, or its end."""

    def __init__(self, text: str, available_offset: int) -> None:
        self.available_offset = available_offset
        super().__init__(text)


class FilterFailed(RocketlineError):
    """A filter met a message on which it cannot be evaluated."""


class StoreError(RocketlineError):
    """The message store cannot do what was asked."""


class CorruptRecord(StoreError):
    """Bytes in the log that are not a valid record."""


class DiskFull(StoreError):
    """No space left for the next write; nothing was written."""


class StoreBusy(StoreError):
    """No buffer is free for the next write; a moment later one may be."""


class LogDiverged(StoreError):
    """The log of a replica does not go on where its master's does: one of them has what the other never had."""


class StoreInUse(StoreError):
    """Another process holds the data folder."""


class StoreClosed(StoreError):
    """The store was closed, or never opened."""


class WrongFiles(StoreError):
    """Files of a store whose sizes or names do not fit the settings."""


class FlushFailed(StoreError):
    """The disk reported an error for a flush. What it has is unknown, and another flush would not show it."""


class StoreReadOnly(StoreError):
    """The store refuses writes; the text says why."""


class Unstorable(RocketlineError):
    """A message that the store will never take as it is: too large, or badly named. Trying again changes nothing."""


BAD_ITEM = (CorruptRecord, ProtocolError, Unstorable, ValueError, ArithmeticError, LookupError, struct.error)
"""What handling a malformed item raises. A background worker sets such an item aside and goes on with the next. All else, a
`StoreError` above all, is not the item's fault: the worker waits and tries the same item again."""


class RequestRejected(RocketlineError):
    """A handler refuses a request: the router answers with this code and remark."""

    def __init__(self, code: int, remark: str) -> None:
        self.code = code
        self.remark = remark
        super().__init__(f"{code}: {remark}")


class CoordinationFailed(RocketlineError):
    """The place that keeps the record of a group of brokers gave no usable answer. What was asked may have been done."""


class ConfigError(RocketlineError, ValueError):
    """A setting with an invalid value; the text names it and the reason."""


class ProcessFailed(RocketlineError):
    """A process that was started for a server could not start, ended too often, or did not stop cleanly."""
