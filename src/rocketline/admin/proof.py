"""Whether a cluster takes an account, and whether it asks for accounts at all.

An account is known when a broker answers a signed request, or refuses it for want of a right. Then every broker is asked
again with the same name and a secret that is made up: one that takes it takes everybody, so its answer proves nothing.
"""

from __future__ import annotations

import secrets
from dataclasses import dataclass

from rocketline.admin.cluster import Admin
from rocketline.admin.remote import AdminBroker
from rocketline.auth.words import lacking_text
from rocketline.errors import BrokerError, NoPermission, RocketlineError, TransportError
from rocketline.protocol.signing import Credentials

SECRET_BYTES = 24


@dataclass(frozen=True)
class Proof:
    """What a cluster says of an account."""

    is_known: bool
    is_super: bool = False
    open_at: str = ""
    """A broker that takes any secret; empty when none does."""


async def prove_account(admin: Admin, name: str, secret: str) -> Proof:
    """Ask the cluster of `admin` about an account; RocketlineError when nobody answers."""
    async with admin.signed_by(Credentials(name, secret)) as own:
        try:
            brokers = await own.brokers()
        except BrokerError:
            return Proof(False)
        witness = await _known_at(own, brokers, name)
        if witness is None:
            return Proof(False)
        open_at = await open_broker(admin, [witness], name) or await open_broker(admin, brokers, name)
        return Proof(not open_at, not open_at and await _is_super(witness, name), open_at)


async def open_broker(admin: Admin, brokers: list[AdminBroker], name: str) -> str:
    """The first of some brokers that takes a name with a secret that is made up; empty when none does."""
    async with admin.signed_by(Credentials(name, secrets.token_urlsafe(SECRET_BYTES))) as stranger:
        answers = await admin.gather_or_errors(stranger.broker_at(item.address).config() for item in brokers)
    if answers and all(isinstance(answer, TransportError) for answer in answers):
        raise next(answer for answer in answers if isinstance(answer, TransportError))
    taken = (not isinstance(answer, TransportError) and not _refuses_account(answer, name) for answer in answers)
    return next((broker.address for broker, is_taken in zip(brokers, taken) if is_taken), "")


async def _known_at(own: Admin, brokers: list[AdminBroker], name: str) -> AdminBroker | None:
    """The first broker that answers, if it knows the account; silent ones are passed over."""
    silent: RocketlineError | None = None
    for broker in brokers:
        try:
            # Apache's broker fails in its first seconds when it is asked for its counters (28), but not for its settings.
            await broker.config()
        except TransportError as error:
            silent = error
        except BrokerError as error:
            # Another failure, as of a busy broker, may come before the account is looked at.
            return broker if _lacks_right(error, name) else None
        else:
            return broker
    if silent is not None:
        raise silent
    return None


async def _is_super(broker: AdminBroker, name: str) -> bool:
    try:
        user = await broker.accounts.user(name)
    except RocketlineError:
        return False
    return user is not None and user.username == name and (user.user_type or "").lower() == "super"


def _lacks_right(answer: object, name: str) -> bool:
    # The name is a part of the text, so only the text that begins with exactly this name says it.
    return isinstance(answer, NoPermission) and answer.remark.startswith(lacking_text(name))


def _refuses_account(answer: object, name: str) -> bool:
    """Whether an answer says that name and secret do not belong together."""
    return isinstance(answer, NoPermission) and not _lacks_right(answer, name)
