"""Rights in RocketMQ's words: `Topic:orders*`, `Pub`, `Allow`. Kinds, actions and the like are read in any case."""

from __future__ import annotations

from enum import IntEnum
from typing import TypeVar

from rocketline.auth.model import EVERYTHING, Acl, Action, Decision, Entry, Pattern, PolicyType, ResourceKind, Target
from rocketline.protocol.bodies.access import AclInfo, PolicyEntryInfo, PolicyInfo

Word = TypeVar("Word", bound=IntEnum)

SUBJECT_KIND = "User"

SYSTEM_ERROR = "An system error occurred, please try again later."
"""What RocketMQ answers to requests about accounts where there are none."""


def by_word(kind: type[Word], text: str | None) -> Word | None:
    """The member that a word stands for; None when there is none.

    >>> by_word(Action, "pub")
    <Action.PUB: 3>
    """
    return kind.__members__.get((text or "").upper())


def word(member: IntEnum) -> str:
    """
    >>> word(Decision.ALLOW)
    'Allow'
    """
    return member.name.capitalize()


def subject_of(name: str) -> str:
    return f"{SUBJECT_KIND}:{name}"


def lacking_text(name: str) -> str:
    """How the refusal of an account begins that is known and lacks a right, on our brokers and on Apache's.

    >>> lacking_text("shop")
    'User:shop has no permission to access '
    """
    return f"{subject_of(name)} has no permission to access "


def subject_name(subject: str | None) -> str | None:
    """The account in `User:name`; None when the text is something else."""
    kind, colon, name = (subject or "").partition(":")
    return name if colon and kind.lower() == SUBJECT_KIND.lower() else None


def parse_target(text: str) -> Target | None:
    """The resources that a text names, None when it names no kind of them; ValueError when they would not be what it seems.

    >>> parse_target("Topic:orders*")
    Target(kind=<ResourceKind.TOPIC: 4>, pattern=<Pattern.PREFIX: 3>, name='orders')
    """
    if text == "*":
        return EVERYTHING
    kind_word, _, name = text.partition(":")
    kind = by_word(ResourceKind, kind_word)
    if kind is None:
        return None
    if kind is ResourceKind.ANY or kind is ResourceKind.NAMESPACE:
        raise ValueError(f"{text!r}: write Topic:, Group: or Cluster: with a name, or * for everything")
    if name == "*":
        return Target(kind, Pattern.ANY, "")
    if not name.strip() or "*" in name[:-1]:
        raise ValueError(f"{text!r}: after the colon there must be a name, a prefix with * at its end, or * alone")
    if name.endswith("*"):
        return Target(kind, Pattern.PREFIX, name[:-1])
    return Target(kind, Pattern.LITERAL, name)


def target_text(target: Target) -> str:
    """
    >>> target_text(Target(ResourceKind.GROUP, Pattern.ANY, ""))
    'Group:*'
    """
    if target.kind is ResourceKind.ANY:
        return "*"
    return f"{word(target.kind)}:{target.name}{'' if target.pattern is Pattern.LITERAL else '*'}"


def entry_text(entry: Entry) -> str:
    """An entry for people.

    >>> target = Target(ResourceKind.TOPIC, Pattern.PREFIX, "orders")
    >>> entry_text(Entry(target, (Action.PUB, Action.SUB), Decision.ALLOW, ("10.0.0.0/8",)))
    'Allow Pub,Sub on Topic:orders* from 10.0.0.0/8'
    """
    where = f" from {','.join(entry.source_ips)}" if entry.source_ips else ""
    return f"{word(entry.decision)} {','.join(map(word, entry.actions))} on {target_text(entry.target)}{where}"


class BadEntry(ValueError):
    """An entry that no server takes; the text is RocketMQ's."""


def acl_of(info: AclInfo) -> Acl:
    """The rights in a body. BadEntry with RocketMQ's text, or another ValueError, when they cannot be."""
    policies = [policy for policy in info.policies if policy.entries]
    if not policies:
        raise BadEntry("The policies is empty.")
    entries: dict[PolicyType, list[Entry]] = {policy: [] for policy in PolicyType}
    for policy in policies:
        entries[by_word(PolicyType, policy.policy_type) or PolicyType.CUSTOM] += map(entry_of, policy.entries)
    return Acl(tuple(entries[PolicyType.CUSTOM]), tuple(entries[PolicyType.DEFAULT]))


def entry_of(info: PolicyEntryInfo) -> Entry:
    """One entry; raises as `acl_of`."""
    target = parse_target(info.resource or "")
    if target is None:
        raise BadEntry("The resource is null.")
    # Words that stand for nothing are passed over, as in RocketMQ.
    actions = tuple(dict.fromkeys(found for text in info.actions if (found := by_word(Action, text)) is not None))
    if not actions:
        raise BadEntry("The actions is empty.")
    if Action.ANY in actions:
        raise BadEntry("The actions can not be Any.")
    sources = tuple(info.source_ips or ())
    if any(not source.strip() for source in sources):
        raise BadEntry("The source ip is empty.")
    decision = by_word(Decision, info.decision)
    entry = Entry(target, actions, decision or Decision.DENY, sources)
    try:
        _ = entry.networks
    except ValueError as error:
        raise BadEntry("The source ip is invalid.") from error
    if decision is None:
        raise BadEntry("The decision is null or illegal.")
    return entry


def acl_info(name: str, acl: Acl) -> AclInfo:
    """The body that tells the rights of an account."""
    policies = [
        PolicyInfo(list(map(_entry_info, entries)), word(policy))
        for policy in PolicyType
        if (entries := acl.entries(policy))
    ]
    return AclInfo(policies, subject_of(name))


def _entry_info(entry: Entry) -> PolicyEntryInfo:
    actions, sources = list(map(word, entry.actions)), list(entry.source_ips)
    return PolicyEntryInfo(actions, word(entry.decision), target_text(entry.target), sources or None)
