"""The audit log: one line on the logger `rocketline.audit` for every change by an operator, with who, what, object, result.

Who is the address, the access key of the request, and the account that a certificate of the connection names. The object is
the fields of the request's header, and the names in its body. Everything from a peer is quoted, so that a peer cannot forge
lines; secrets are left out.
"""

from __future__ import annotations

import asyncio
import json
import logging
from collections.abc import Awaitable, Callable, Iterable, Iterator
from functools import partial
from typing import Any

import msgspec

from rocketline.errors import ProtocolError, RequestRejected
from rocketline.protocol.bodies import AclInfo, UserInfo, decode_body
from rocketline.protocol.codes import RequestCode, ResponseCode, code_name
from rocketline.protocol.command import Command
from rocketline.protocol.signing import ACCESS_KEY, ACCOUNT_FIELDS
from rocketline.settings import parse_properties
from rocketline.transport.channel import Channel
from rocketline.transport.router import Handler, Reply, Router

log = logging.getLogger("rocketline.audit")

_NOT_SHOWN = ACCOUNT_FIELDS | {"value"}
"""`value`: a key-value setting may be a password."""
MAX_FIELDS = 16
MAX_CHARS = 200
MAX_NAMES = 20

CHANGES = frozenset(
    {
        RequestCode.UPDATE_AND_CREATE_TOPIC,
        RequestCode.UPDATE_AND_CREATE_TOPIC_LIST,
        RequestCode.UPDATE_AND_CREATE_STATIC_TOPIC,
        RequestCode.DELETE_TOPIC_IN_BROKER,
        RequestCode.DELETE_TOPIC_IN_NAMESRV,
        RequestCode.REGISTER_TOPIC_IN_NAMESRV,
        RequestCode.UPDATE_AND_CREATE_SUBSCRIPTIONGROUP,
        RequestCode.UPDATE_AND_CREATE_SUBSCRIPTIONGROUP_LIST,
        RequestCode.DELETE_SUBSCRIPTIONGROUP,
        RequestCode.UPDATE_AND_GET_GROUP_FORBIDDEN,
        RequestCode.UPDATE_BROKER_CONFIG,
        RequestCode.UPDATE_NAMESRV_CONFIG,
        RequestCode.SET_MESSAGE_REQUEST_MODE,
        RequestCode.INVOKE_BROKER_TO_RESET_OFFSET,
        RequestCode.CLONE_GROUP_OFFSET,
        RequestCode.CONSUME_MESSAGE_DIRECTLY,
        RequestCode.RESUME_CHECK_HALF_MESSAGE,
        RequestCode.DELETE_EXPIRED_COMMITLOG,
        RequestCode.CLEAN_EXPIRED_CONSUMEQUEUE,
        RequestCode.CLEAN_UNUSED_TOPIC,
        RequestCode.WIPE_WRITE_PERM_OF_BROKER,
        RequestCode.ADD_WRITE_PERM_OF_BROKER,
        RequestCode.CONTROLLER_ELECT_MASTER,
        RequestCode.CONTROLLER_CLEAN_BROKER_DATA,
        RequestCode.NOTIFY_BROKER_ROLE_CHANGED,
        RequestCode.PUT_KV_CONFIG,
        RequestCode.DELETE_KV_CONFIG,
        RequestCode.AUTH_CREATE_USER,
        RequestCode.AUTH_UPDATE_USER,
        RequestCode.AUTH_DELETE_USER,
        RequestCode.AUTH_CREATE_ACL,
        RequestCode.AUTH_UPDATE_ACL,
        RequestCode.AUTH_DELETE_ACL,
    }
)


def audited(router: Router) -> Router:
    """The same router, which now logs every change."""
    for code in CHANGES & router.codes:
        router.change(code, lambda handler: partial(_serve, handler))
    return router


def _serve(handler: Handler, channel: Channel, request: Command) -> Reply:
    """Call the handler and log the change with its result."""
    try:
        reply = handler(channel, request)
    except RequestRejected as rejected:
        _log_change(channel, request, rejected.code, rejected.remark)
        raise
    except Exception as error:
        _log_change(channel, request, ResponseCode.SYSTEM_ERROR, f"{type(error).__name__}: {error}")
        raise
    if isinstance(reply, Awaitable):
        future = asyncio.ensure_future(reply)
        future.add_done_callback(partial(_log_result, channel, request))
        return future
    code, remark = (reply.code, reply.remark) if isinstance(reply, Command) else (ResponseCode.SUCCESS, None)
    _log_change(channel, request, code, remark)
    return reply


def _log_result(channel: Channel, request: Command, future: asyncio.Future[Command | None]) -> None:
    if future.cancelled():
        _log_change(channel, request, ResponseCode.SYSTEM_ERROR, "the connection was closed first")
    elif (error := future.exception()) is not None:
        _log_change(channel, request, getattr(error, "code", ResponseCode.SYSTEM_ERROR), str(error))
    elif (reply := future.result()) is not None:
        _log_change(channel, request, reply.code, reply.remark)


def _log_change(channel: Channel, request: Command, code: int, remark: str | None) -> None:
    ext = request.ext or {}
    fields = {
        **who_sent(channel, request),
        "what": code_name(RequestCode, request.code).upper(),
        "object": _object_of(request, ext),
        "result": code_name(ResponseCode, code).upper(),
    }
    if remark and code != ResponseCode.SUCCESS:
        fields["why"] = shortened(remark)
    write_line(fields)


def who_sent(channel: Channel, request: Command) -> dict[str, Any]:
    """The sender of a request, as the first fields of a line."""
    account = (request.ext or {}).get(ACCESS_KEY, "") or channel.identity or "-"
    certificate = {"certificate": shortened(channel.certificate)} if channel.certificate else {}
    return {"who": channel.remote, "access_key": shortened(account), **certificate}


def log_changed_files(where: str, changed: dict[str, list[str]]) -> None:
    """A line about files that another program changed; `changed` has the names in them, by kind."""
    told = {kind: [*map(shortened, names[:MAX_NAMES])] for kind, names in changed.items() if names}
    write_line({"who": f"files in {where}", "what": "ACCOUNTS_CHANGED", "object": told, "result": "SUCCESS"})


def write_line(fields: dict[str, Any]) -> None:
    """Write a line of these fields."""
    text = " ".join(f"{name}={json.dumps(value, ensure_ascii=False)}" for name, value in fields.items())
    log.info("%s", text, extra={"fields": fields})


def _object_of(request: Command, ext: dict[str, str]) -> dict[str, Any]:
    shown = [(name, value) for name, value in ext.items() if name not in _NOT_SHOWN][:MAX_FIELDS]
    found: dict[str, Any] = {shortened(name): shortened(value) for name, value in shown}
    if names := list(_names_in(request)):
        found["names"] = names[:MAX_NAMES]
    return found


def _names_in(request: Command) -> Iterator[str]:
    """Names of what a body changes; none when it cannot be read, which shows in the result."""
    if not request.body:
        return
    try:
        yield from map(shortened, _READERS.get(request.code, _object_names)(request.body))
    except (msgspec.DecodeError, RecursionError, ProtocolError):
        return


def _setting_names(body: bytes) -> Iterable[str]:
    return parse_properties(body[:65536].decode("utf-8", "replace"))


def _user_changes(body: bytes) -> Iterable[str]:
    """What an order says about an account; of a password only that there is one."""
    user = decode_body(UserInfo, body)
    return filter(None, (user.user_type, user.user_status, user.password and "password"))


def _right_changes(body: bytes) -> Iterable[str]:
    for policy in decode_body(AclInfo, body).policies:
        for entry in policy.entries:
            words = [policy.policy_type, entry.decision, ",".join(entry.actions), "on", entry.resource]
            if entry.source_ips:
                words += ["from", ",".join(entry.source_ips)]
            yield " ".join(filter(None, words))


def _object_names(body: bytes) -> Iterable[str]:
    for item in _objects_in(msgspec.json.decode(body)):
        for key in ("topicName", "groupName", "topic", "consumerGroup"):
            if isinstance(value := item.get(key), str):
                yield value


_READERS: dict[int, Callable[[bytes], Iterable[str]]] = {
    RequestCode.UPDATE_BROKER_CONFIG: _setting_names,
    RequestCode.UPDATE_NAMESRV_CONFIG: _setting_names,
    RequestCode.AUTH_CREATE_USER: _user_changes,
    RequestCode.AUTH_UPDATE_USER: _user_changes,
    RequestCode.AUTH_CREATE_ACL: _right_changes,
    RequestCode.AUTH_UPDATE_ACL: _right_changes,
}
"""Bodies that are not objects with the name of a topic or group."""


def _objects_in(body: object) -> list[dict[str, Any]]:
    if not isinstance(body, dict):
        return []
    lists = [value for value in body.values() if isinstance(value, list)]
    return [body, *(item for value in lists for item in value if isinstance(item, dict))]


def shortened(text: str) -> str:
    return text if len(text) <= MAX_CHARS else f"{text[:MAX_CHARS]}..."
