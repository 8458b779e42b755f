"""Accounts of a broker in tests, in memory only."""

from __future__ import annotations

from rocketline.auth.accounts import Accounts
from rocketline.auth.model import Acl, Action, Decision, Entry, Pattern, ResourceKind, Target, User
from rocketline.store.files.disk import RealDisk


def accounts_of(*names: str) -> Accounts:
    """Accounts without any right."""
    accounts = Accounts.open(None, RealDisk())
    for name in names:
        accounts.create_user(User(name, f"secret of {name}"))
    return accounts


def grant(accounts: Accounts, name: str, topic: str, *actions: Action) -> None:
    entry = Entry(Target(ResourceKind.TOPIC, Pattern.LITERAL, topic), actions, Decision.ALLOW)
    accounts.put_entries(name, Acl((entry,)))
