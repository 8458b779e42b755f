"""Requests about accounts (3001 to 3010), served with what a server has."""

from __future__ import annotations

from typing import NoReturn

from rocketline.auth.accounts import Accounts
from rocketline.auth.guard import AccessGuard
from rocketline.auth.needs import ACCOUNT_CODES
from rocketline.auth.requests import AccessHandlers
from rocketline.auth.words import SYSTEM_ERROR
from rocketline.clock import Clock
from rocketline.errors import RequestRejected
from rocketline.protocol.codes import RequestCode, ResponseCode
from rocketline.protocol.command import Command
from rocketline.transport import Channel, Handler

READS = {
    RequestCode.AUTH_GET_USER,
    RequestCode.AUTH_LIST_USER,
    RequestCode.AUTH_GET_ACL,
    RequestCode.AUTH_LIST_ACL,
}


def account_routes(
    accounts: Accounts | None, guard: AccessGuard | None, clock: Clock, *, is_kept: bool = True
) -> dict[int, Handler]:
    """The handlers; without accounts those that say so, as RocketMQ does. Accounts that are not kept are not changed: after
    a restart the change would be gone."""
    if accounts is None or guard is None:
        return dict.fromkeys(ACCOUNT_CODES, _without_accounts)
    routes = AccessHandlers(accounts, clock, guard.caller, guard.sees_passwords, guard.own_account).routes()
    if not is_kept:
        routes |= dict.fromkeys(ACCOUNT_CODES - READS, _without_folder)
    return routes


def _without_accounts(channel: Channel, request: Command) -> NoReturn:
    raise RequestRejected(ResponseCode.SYSTEM_ERROR, SYSTEM_ERROR)


def _without_folder(channel: Channel, request: Command) -> NoReturn:
    raise RequestRejected(
        ResponseCode.NO_PERMISSION,
        "this server has no folder for accounts, so it would forget the change: set rocketline.authPath or kvConfigPath",
    )
