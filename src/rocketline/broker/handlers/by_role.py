"""What a broker that is not the master refuses, and what a master refuses whose lease is over.

Codes and remarks are those of Apache's slaves, where these refuse as well.
"""

from __future__ import annotations

from rocketline.auth.needs import ACCOUNT_CODES
from rocketline.broker.handlers.busy import SENDS
from rocketline.broker.replication.roles import NOT_MASTER, Role, Roles
from rocketline.broker.replication.table_changes import CODES as TABLE_CHANGES
from rocketline.errors import RequestRejected
from rocketline.protocol.codes import RequestCode, ResponseCode
from rocketline.protocol.command import Command
from rocketline.transport import Channel, Handler, Reply

REJECTED = "[REJECTREQUEST]system busy, start flow control for a while: this broker is a slave"

PULLS = (RequestCode.PULL_MESSAGE, RequestCode.LITE_PULL_MESSAGE)
POPS = (
    RequestCode.POP_MESSAGE, RequestCode.ACK_MESSAGE, RequestCode.BATCH_ACK_MESSAGE,
    RequestCode.CHANGE_MESSAGE_INVISIBLETIME, RequestCode.NOTIFICATION, RequestCode.PEEK_MESSAGE,
)  # fmt: skip
STORING = (
    *SENDS, RequestCode.CONSUMER_SEND_MSG_BACK, RequestCode.SEND_REPLY_MESSAGE, RequestCode.SEND_REPLY_MESSAGE_V2,
)  # fmt: skip
"""Requests whose messages only a master stores."""
TRANSACTIONS = (RequestCode.END_TRANSACTION, RequestCode.RECALL_MESSAGE)
SHARED_OUT = (
    *PULLS, *POPS, RequestCode.UPDATE_CONSUMER_OFFSET, RequestCode.QUERY_CONSUMER_OFFSET, RequestCode.LOCK_BATCH_MQ,
    RequestCode.UNLOCK_BATCH_MQ,
)  # fmt: skip
"""What a master gives out without asking anybody: two masters of one name must never both do so."""
CHANGES = (
    *TABLE_CHANGES, RequestCode.INVOKE_BROKER_TO_RESET_OFFSET,
)  # fmt: skip
"""Orders of operators that a replica copies from its master."""
ACCOUNT_CHANGES = tuple(
    code for code in ACCOUNT_CODES if RequestCode(code).name.startswith(("AUTH_CREATE", "AUTH_UPDATE", "AUTH_DELETE"))
)


def by_role(routes: dict[int, Handler], roles: Roles, *, is_readable: bool) -> dict[int, Handler]:
    """The routes as the role wants them; built anew when it changes. `is_readable`: consumers may read from a replica."""
    if roles.role is Role.MASTER:
        return _with_lease(routes, roles) if roles.is_coordinated else routes
    if roles.role is Role.FENCED:
        fenced = _refusing(ResponseCode.SERVICE_NOT_AVAILABLE, NOT_MASTER)
        refused = dict.fromkeys((*TRANSACTIONS, *SHARED_OUT, *CHANGES, *ACCOUNT_CHANGES), fenced)
        return routes | refused | dict.fromkeys(STORING, _counting(roles, fenced))
    busy = _refusing(ResponseCode.SYSTEM_BUSY, REJECTED)
    refused = dict.fromkeys((*STORING, *POPS, *(() if is_readable else PULLS)), busy)
    refused |= dict.fromkeys(TRANSACTIONS, _refusing(ResponseCode.SLAVE_NOT_AVAILABLE, NOT_MASTER))
    refused |= dict.fromkeys(
        (*CHANGES, *ACCOUNT_CHANGES), _refusing(ResponseCode.SYSTEM_ERROR, f"{NOT_MASTER}: change it on the master")
    )
    if is_readable and roles.is_coordinated:
        refused |= {code: _while_giving(roles, routes[code], busy) for code in PULLS if code in routes}
    return routes | {code: handler for code, handler in refused.items() if code in routes}


def _refusing(code: ResponseCode, remark: str) -> Handler:
    def refuse(channel: Channel, request: Command) -> Reply:
        raise RequestRejected(code, remark)

    return refuse


def _counting(roles: Roles, refuse: Handler) -> Handler:
    def count(channel: Channel, request: Command) -> Reply:
        roles.fenced_writes += 1
        return refuse(channel, request)

    return count


def _with_lease(routes: dict[int, Handler], roles: Roles) -> dict[int, Handler]:
    def with_lease(handler: Handler) -> Handler:
        def give(channel: Channel, request: Command) -> Reply:
            roles.require_giving()
            return handler(channel, request)

        return give

    return routes | {code: with_lease(routes[code]) for code in SHARED_OUT if code in routes}


def _while_giving(roles: Roles, handler: Handler, refuse: Handler) -> Handler:
    def give(channel: Channel, request: Command) -> Reply:
        return handler(channel, request) if roles.gives_out else refuse(channel, request)

    return give
