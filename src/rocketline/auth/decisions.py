"""Whether an account's rights meet a need. Pure: the same arguments give the same verdict.

Custom entries count before default ones. Of those that are about the resource and fit the action and the address, the most
specific decides: a literal, then the longest prefix, then all resources of a kind, then `*`; Deny before Allow. An entry
whose action or address does not fit is as if absent. Without any entry the need is not met.
"""

from __future__ import annotations

from rocketline.auth.model import Acl, Action, Decision, Entry, Need, User, UserStatus, UserType, Verdict
from rocketline.system.networks import has_address

ALLOWED = Verdict(True)
NOT_ALLOWED = Verdict(False)


def decide(user: User, acl: Acl, need: Need, ip: str) -> Verdict:
    """May `user` do this, coming from `ip`? A super user may everything, a disabled one nothing."""
    if user.status is not UserStatus.ENABLE:
        return NOT_ALLOWED
    if user.type is UserType.SUPER:
        return ALLOWED
    for index in acl.indexes:
        for entry in index.about(need.resource):
            if covers_action(entry, need.actions) and covers_address(entry, ip):
                return Verdict(entry.decision is Decision.ALLOW, entry)
    return NOT_ALLOWED


def covers_action(entry: Entry, actions: tuple[Action, ...]) -> bool:
    """Whether the entry names one of the actions."""
    return Action.ALL in entry.actions or any(action in entry.actions for action in actions)


def covers_address(entry: Entry, ip: str) -> bool:
    """Whether the entry counts for a sender at this address; "" is a sender without one."""
    if not entry.source_ips:
        return True
    return has_address(entry.networks, ip)
