"""The verbs of `rocketline admin`, grouped by what they are about; importing this declares them all."""

from rocketline.cli.verbs import (
    accounts,
    brokers,
    clients,
    dead_letters,
    doctor,
    groups,
    messages,
    nameservers,
    offsets,
    sending,
    topics,
)

__all__ = [
    "accounts",
    "brokers",
    "clients",
    "dead_letters",
    "doctor",
    "groups",
    "messages",
    "nameservers",
    "offsets",
    "sending",
    "topics",
]
