"""Why an account may do something, or may not: which entries were looked at, which decided; and who may do it at all."""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from dataclasses import dataclass

from rocketline.auth.decisions import ALLOWED, covers_action, covers_address, decide
from rocketline.auth.model import (
    Acl,
    Action,
    Entry,
    Need,
    Pattern,
    PolicyType,
    Resource,
    User,
    UserStatus,
    UserType,
    Verdict,
)
from rocketline.auth.needs import Server, is_for_every_account
from rocketline.auth.words import by_word, entry_text, parse_target, word

UNKNOWN_SERVER = Server()
"""One that gives nothing to every account, as far as one knows."""
FOR_EVERY_ACCOUNT = "every account may: traces of its own messages"


@dataclass(frozen=True)
class Looked:
    """An entry, and what it had to say."""

    policy: PolicyType
    entry: Entry
    why: str

    def __str__(self) -> str:
        return f"{word(self.policy)}: {entry_text(self.entry)}: {self.why}"


@dataclass(frozen=True)
class Explanation:
    verdict: Verdict
    reason: str
    """In one sentence."""
    looked: tuple[Looked, ...]
    """All entries of the account, in the order in which they count; none when no entry is asked."""


def parse_need(actions: str, resource: str) -> Need:
    """What a person asks about: `Pub` or `Sub,Get`, and `Topic:orders`. ValueError says what is wrong with it."""
    found = [by_word(Action, text.strip()) for text in actions.split(",")]
    known = tuple(action for action in found if action is not None and action not in (Action.ALL, Action.ANY))
    if len(known) < len(found):
        raise ValueError(f"{actions!r}: the actions are {', '.join(map(word, _ASKED))}")
    target = parse_target(resource)
    if target is None or target.pattern is not Pattern.LITERAL:
        raise ValueError(f"{resource!r}: name one topic, group or cluster, as Topic:orders")
    return Need(Resource(target.kind, target.name), known)


_ASKED = tuple(action for action in Action if action not in (Action.ALL, Action.ANY))


def explain(user: User, acl: Acl, need: Need, ip: str, server: Server = UNKNOWN_SERVER) -> Explanation:
    """Every entry of the account, with why it decided or did not; `ip` is where the account comes from."""
    verdict = decide(user, acl, need, ip)
    are_asked = user.status is UserStatus.ENABLE and user.type is not UserType.SUPER
    if are_asked and is_for_every_account(need, server):
        return Explanation(ALLOWED, FOR_EVERY_ACCOUNT, ())
    return Explanation(verdict, _reason(user, verdict), tuple(_looked(acl, need, ip)) if are_asked else ())


def _reason(user: User, verdict: Verdict) -> str:
    if user.status is not UserStatus.ENABLE:
        return f"{user.name} is disabled, and may do nothing"
    if user.type is UserType.SUPER:
        return f"{user.name} is a super user, and may do everything"
    if verdict.entry is None:
        return f"no entry of {user.name} fits, so it is denied"
    return f"decided by: {entry_text(verdict.entry)}"


def _looked(acl: Acl, need: Need, ip: str) -> Iterator[Looked]:
    decided: PolicyType | None = None
    for policy, index in zip(PolicyType, acl.indexes):
        about = list(index.about(need.resource))
        for entry in about:
            if not covers_action(entry, need.actions):
                why = "about another action"
            elif not covers_address(entry, ip):
                why = f"not from {ip or 'an unknown address'}"
            elif decided is None:
                why, decided = "decides", policy
            else:
                why = "a more specific entry decides" if decided is policy else "custom entries count first"
            yield Looked(policy, entry, why)
        yield from (
            Looked(policy, entry, "about something else") for entry in acl.entries(policy) if entry not in about
        )


@dataclass(frozen=True)
class Permitted:
    """An account that may do something."""

    user: User
    entry: Entry | None
    """None: it is a super user, or every account may."""
    ip: str
    """Where it may do it from; "" is an address that no entry names."""


def who_may(
    accounts: Iterable[tuple[User, Acl]], need: Need, ip: str | None = None, server: Server = UNKNOWN_SERVER
) -> Iterator[Permitted]:
    """The accounts that may do this from `ip`; without it also those that may from some addresses only."""
    is_open = is_for_every_account(need, server)
    for user, acl in accounts:
        if is_open and user.status is UserStatus.ENABLE:
            yield Permitted(user, None, ip or "")
            continue
        for place in [ip] if ip is not None else ["", *_places(acl, need)]:
            verdict = decide(user, acl, need, place)
            if verdict.is_allowed:
                yield Permitted(user, verdict.entry, place)
                break


def _places(acl: Acl, need: Need) -> Iterator[str]:
    """An address of each network that the entries about a resource name."""
    for index in acl.indexes:
        for entry in index.about(need.resource):
            yield from (str(network.network_address) for network in entry.networks)
