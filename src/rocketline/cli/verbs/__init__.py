"""The verbs of `rocketline admin`, grouped by what they are about; importing this declares them all."""

from rocketline.cli.verbs import (
    accounts,
    brokers,
    clients,
    dead_letters,
    doctor,
    elections,
    groups,
    messages,
    nameservers,
    offsets,
    searching,
    sending,
    summaries,
    topics,
    waiting,
)

__all__ = [
    "accounts",
    "brokers",
    "clients",
    "dead_letters",
    "doctor",
    "elections",
    "groups",
    "messages",
    "nameservers",
    "offsets",
    "searching",
    "sending",
    "summaries",
    "topics",
    "waiting",
]
