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
from rocketline.protocol.codes import ResponseCode
from rocketline.protocol.command import Command
from rocketline.transport import Channel, Handler


def account_routes(accounts: Accounts | None, guard: AccessGuard | None, clock: Clock) -> dict[int, Handler]:
    """The handlers; without accounts those that say so, as RocketMQ does."""
    if accounts is None or guard is None:
        return dict.fromkeys(ACCOUNT_CODES, _without_accounts)
    return AccessHandlers(accounts, clock, guard.caller, guard.sees_passwords).routes()


def _without_accounts(channel: Channel, request: Command) -> NoReturn:
    raise RequestRejected(ResponseCode.SYSTEM_ERROR, SYSTEM_ERROR)
