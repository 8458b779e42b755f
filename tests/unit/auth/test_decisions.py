"""Who may do what: RocketMQ's rules one by one, then everything at once against a slow writing of the same rules."""

from __future__ import annotations

from ipaddress import ip_address, ip_network
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from rocketline.auth.decisions import decide
from rocketline.auth.explain import explain, parse_need, who_may
from rocketline.auth.model import (
    Acl,
    Action,
    Decision,
    Entry,
    Need,
    Pattern,
    PolicyType,
    Resource,
    ResourceKind,
    User,
    UserStatus,
    UserType,
)
from rocketline.auth.needs import Server
from rocketline.auth.words import entry_of, entry_text, parse_target, target_text
from rocketline.protocol.bodies import PolicyEntryInfo

AMY = User("amy", "secret")


def entry(text: str) -> Entry:
    """`Allow Pub,Sub on Topic:x from 10.0.0.0/8`."""
    decision, actions, _, resource, *sources = text.split(" ")
    return entry_of(PolicyEntryInfo(actions.split(","), decision, resource, sources[1].split(",") if sources else None))


def acl(*lines: str) -> Acl:
    """Lines that begin with `default` are of the default policy."""
    custom = tuple(entry(line) for line in lines if not line.startswith("default "))
    return Acl(custom, tuple(entry(line[8:]) for line in lines if line.startswith("default ")))


PUB = "Pub on Topic:orders"


@pytest.mark.parametrize(
    ("lines", "asked", "ip", "allowed"),
    [
        ([], PUB, "10.0.0.1", False),
        (["Allow Pub on Topic:orders"], PUB, "10.0.0.1", True),
        (["Allow Pub on topic:orders"], PUB, "10.0.0.1", True),
        (["Allow Pub on Topic:Orders"], PUB, "10.0.0.1", False),
        (["Allow Pub on Group:orders"], PUB, "10.0.0.1", False),
        (["Allow All on *"], PUB, "10.0.0.1", True),
        # The most specific decides, whatever it says.
        (["Deny Pub on Topic:ord*", "Allow Pub on Topic:orders"], PUB, "10.0.0.1", True),
        (["Allow Pub on Topic:ord*", "Deny Pub on Topic:orders"], PUB, "10.0.0.1", False),
        (["Allow Pub on Topic:orde*", "Deny Pub on Topic:ord*"], PUB, "10.0.0.1", True),
        (["Deny Pub on Topic:orde*", "Allow Pub on Topic:ord*"], PUB, "10.0.0.1", False),
        (["Allow Pub on Topic:*", "Deny Pub on *"], PUB, "10.0.0.1", True),
        (["Deny Pub on Topic:*", "Allow Pub on *"], PUB, "10.0.0.1", False),
        (["Deny Pub on *", "Allow Pub on Topic:orders"], PUB, "10.0.0.1", True),
        # Of equals Deny decides.
        (["Allow Pub on Topic:orders", "Deny Pub on Topic:orders"], PUB, "10.0.0.1", False),
        (["Deny Pub on Topic:orders", "Allow Pub on Topic:orders"], PUB, "10.0.0.1", False),
        # Custom entries count first.
        (["Deny Pub on Topic:*", "default Allow Pub on Topic:orders"], PUB, "10.0.0.1", False),
        (["Allow Pub on *", "default Deny Pub on Topic:orders"], PUB, "10.0.0.1", True),
        (["Allow Sub on Topic:orders", "default Allow Pub on *"], PUB, "10.0.0.1", True),
        # What does not fit is absent.
        (["Deny Pub on Topic:orders", "Allow All on Topic:ord*"], "Get on Topic:orders", "10.0.0.1", True),
        (["Deny Pub on Topic:orders from 10.9.0.0/16", "Allow All on Topic:ord*"], PUB, "10.0.0.1", True),
        # One of several actions is enough.
        (["Allow Get on Topic:orders"], "Sub,Get on Topic:orders", "10.0.0.1", True),
        (["Allow Sub on Topic:orders", "Deny Get on Topic:orders"], "Sub,Get on Topic:orders", "10.0.0.1", False),
        # Addresses: families never mix, and a mapped address is what it stands for.
        (["Allow Pub on * from 10.0.0.1"], PUB, "10.0.0.1", True),
        (["Allow Pub on * from 10.0.0.1"], PUB, "10.0.0.2", False),
        (["Allow Pub on * from 10.0.0.1/8"], PUB, "10.9.9.9", True),
        (["Allow Pub on * from 10.0.0.1/32"], PUB, "10.0.0.2", False),
        (["Allow Pub on * from 10.0.0.0/8"], PUB, "::ffff:10.0.0.1", True),
        (["Allow Pub on * from ::ffff:10.0.0.0/104"], PUB, "10.0.0.1", True),
        (["Allow Pub on * from ::/0"], PUB, "10.0.0.1", False),
        (["Allow Pub on * from ::/0"], PUB, "::ffff:10.0.0.1", False),
        (["Allow Pub on * from 0.0.0.0/0"], PUB, "::1", False),
        (["Allow Pub on * from 0.0.0.0/0,::1"], PUB, "::1", True),
        (["Allow Pub on * from fe80::/10"], PUB, "fe80::1%eth0", True),
        (["Allow Pub on * from 0.0.0.0/0"], PUB, "", False),
        (["Allow Pub on *"], PUB, "", True),
    ],
)
def test_rules(lines: list[str], asked: str, ip: str, allowed: bool) -> None:
    actions, _, resource = asked.split(" ")
    assert decide(AMY, acl(*lines), parse_need(actions, resource), ip).is_allowed is allowed


@pytest.mark.parametrize(
    ("kind", "status", "allowed"),
    [
        (UserType.SUPER, UserStatus.ENABLE, True),
        (UserType.NORMAL, UserStatus.ENABLE, False),
        (UserType.SUPER, UserStatus.DISABLE, False),
    ],
)
def test_a_super_user_needs_no_entry(kind: UserType, status: UserStatus, allowed: bool) -> None:
    user, rights = User("root", "secret", kind, status), acl("Deny All on * from 10.0.0.1")
    assert decide(user, rights, parse_need("Pub", "Topic:orders"), "10.0.0.1").is_allowed is allowed


Lines = tuple[Entry, ...]

# Everything at once. Few names and addresses, so that much coincides.

NAMES = st.sampled_from(["a", "ab", "abc", "b", "ba"])
ASKED_ACTIONS = [action for action in Action if action not in (Action.ALL, Action.ANY)]
KINDS = st.sampled_from([ResourceKind.TOPIC, ResourceKind.GROUP])
PATTERNS = st.one_of(
    st.just("*"),
    st.builds(
        "{}:{}".format, KINDS.map(lambda kind: kind.name), st.one_of(st.just("*"), NAMES, NAMES.map("{}*".format))
    ),
)
SOURCES = st.sampled_from(["10.0.0.1", "10.0.0.0/8", "10.0.0.0/30", "::1", "::/0", "::ffff:10.0.0.1", "0.0.0.0/0"])
ENTRIES = st.builds(
    lambda pattern, actions, decision, sources: Entry(parse_target(pattern), tuple(actions), decision, tuple(sources)),
    PATTERNS,
    st.lists(st.sampled_from([Action.ALL, Action.PUB, Action.SUB, Action.GET]), min_size=1, unique=True),
    st.sampled_from(Decision),
    st.lists(SOURCES, max_size=2),
)
LISTS = st.lists(ENTRIES, max_size=6).map(tuple)
NEEDS = st.builds(
    Need,
    st.builds(Resource, KINDS, NAMES),
    st.lists(st.sampled_from([Action.PUB, Action.SUB, Action.GET]), min_size=1, unique=True).map(tuple),
)
IPS = st.sampled_from(["10.0.0.1", "10.0.0.200", "::1", "::ffff:10.0.0.2", "2001:db8::1", ""])


def slowly(rights: Acl, need: Need, ip: str) -> bool:
    """The rules as one would say them: filter, sort, take the first."""
    for entries in (rights.custom, rights.default):
        fitting = [item for item in entries if is_about(item, need) and has_action(item, need) and is_from(item, ip)]
        if fitting:
            return min(fitting, key=rank).decision is Decision.ALLOW
    return False


def is_about(item: Entry, need: Need) -> bool:
    text = target_text(item.target)
    name = f"{need.resource.kind.name.capitalize()}:{need.resource.name}"
    return text == "*" or (name.startswith(text[:-1]) if text.endswith("*") else name == text)


def has_action(item: Entry, need: Need) -> bool:
    return Action.ALL in item.actions or bool(set(item.actions) & set(need.actions))


def is_from(item: Entry, ip: str) -> bool:
    if not item.source_ips or not ip:
        return not item.source_ips
    return any(
        plain(ip) in covered
        for text in item.source_ips
        if (covered := plain_network(text)).version == plain(ip).version
    )


def plain(ip: str) -> Any:
    return ip_address(ip.removeprefix("::ffff:"))


def plain_network(text: str) -> Any:
    return ip_network(text.removeprefix("::ffff:"), strict=False)


def rank(item: Entry) -> tuple[bool, bool, bool, int, bool]:
    """Smaller is more specific."""
    target = item.target
    is_literal, is_any = target.pattern is Pattern.LITERAL, target.pattern is Pattern.ANY
    return target.kind is ResourceKind.ANY, is_any, not is_literal, -len(target.name), item.decision is Decision.ALLOW


@given(LISTS, LISTS, NEEDS, IPS)
def test_a_decision_is_what_the_rules_say(custom: Lines, default: Lines, need: Need, ip: str) -> None:
    rights = Acl(custom, default)
    verdict = decide(AMY, rights, need, ip)
    assert verdict.is_allowed is slowly(rights, need, ip)
    assert verdict.entry is None or verdict.is_allowed is (verdict.entry.decision is Decision.ALLOW)


@given(LISTS, LISTS, NEEDS, IPS)
def test_an_explanation_names_every_entry_and_the_one_that_decided(
    custom: Lines, default: Lines, need: Need, ip: str
) -> None:
    rights = Acl(custom, default)
    told = explain(AMY, rights, need, ip)
    assert told.verdict == decide(AMY, rights, need, ip)
    for policy in PolicyType:
        shown = [looked.entry for looked in told.looked if looked.policy is policy]
        assert sorted(map(entry_text, shown)) == sorted(map(entry_text, rights.entries(policy)))
    assert [looked.entry for looked in told.looked if looked.why == "decides"] == (
        [] if told.verdict.entry is None else [told.verdict.entry]
    )


def test_an_explanation_says_why_others_did_not_decide() -> None:
    rights = acl(
        "Deny Sub on Topic:orders", "Deny Pub on Topic:orders from 10.9.0.0/16", "Allow Pub on Topic:ord*",
        "Allow Pub on *", "Allow Pub on Topic:bills", "default Deny Pub on *",
    )  # fmt: skip
    told = explain(AMY, rights, parse_need("Pub", "Topic:orders"), "10.0.0.1")
    assert told.reason == "decided by: Allow Pub on Topic:ord*"
    assert [str(looked) for looked in told.looked] == [
        "Custom: Deny Sub on Topic:orders: about another action",
        "Custom: Deny Pub on Topic:orders from 10.9.0.0/16: not from 10.0.0.1",
        "Custom: Allow Pub on Topic:ord*: decides",
        "Custom: Allow Pub on *: a more specific entry decides",
        "Custom: Allow Pub on Topic:bills: about something else",
        "Default: Deny Pub on *: custom entries count first",
    ]


def test_those_who_may() -> None:
    accounts = [
        (User("root", "s", UserType.SUPER), acl()),
        (User("off", "s", status=UserStatus.DISABLE), acl("Allow All on *")),
        (User("shop", "s"), acl("Allow Pub on Topic:ord*")),
        (User("near", "s"), acl("Allow Pub on Topic:orders from 10.0.0.0/8")),
        (User("other", "s"), acl("Allow Pub on Topic:bills")),
    ]
    need = parse_need("Pub", "Topic:orders")
    assert [(found.user.name, found.ip) for found in who_may(accounts, need)] == [
        ("root", ""), ("shop", ""), ("near", "10.0.0.0"),
    ]  # fmt: skip
    assert [found.user.name for found in who_may(accounts, need, "192.0.2.1")] == ["root", "shop"]


@pytest.mark.parametrize("actions", ["Pub", "Create", "Get,Pub"])
def test_what_every_account_may_needs_no_entry(actions: str) -> None:
    need, server = parse_need(actions, "Topic:TRACES"), Server(trace_topic="TRACES")
    told = explain(AMY, acl("Deny All on *"), need, "10.0.0.1", server)
    assert (told.verdict.is_allowed, told.reason) == (True, "every account may: traces of its own messages")
    off = User("off", "s", status=UserStatus.DISABLE)
    assert not explain(off, acl(), need, "", server).verdict.is_allowed
    assert [found.user.name for found in who_may([(AMY, acl()), (off, acl())], need, server=server)] == [AMY.name]
    assert not explain(AMY, acl(), parse_need("Sub", "Topic:TRACES"), "", server).verdict.is_allowed
    assert not explain(AMY, acl(), need, "").verdict.is_allowed, "another server"


@pytest.mark.parametrize(
    ("actions", "resource"), [("All", "Topic:a"), ("Fly", "Topic:a"), ("Pub", "Topic:a*"), ("Pub", "a")]
)
def test_what_nobody_can_be_asked(actions: str, resource: str) -> None:
    with pytest.raises(ValueError, match="'"):
        parse_need(actions, resource)


# Resources as text


@pytest.mark.parametrize(
    "text", ["*", "Topic:orders", "Topic:orders*", "Topic:*", "Group:g", "Cluster:c", "Topic:%RETRY%g"]
)
def test_a_resource_is_read_and_written(text: str) -> None:
    target = parse_target(text)
    assert target is not None
    assert target_text(target) == text


@pytest.mark.parametrize(
    "text", ["Topic:a*b*", "Topic:a*b", "Any:x", "Any:*", "Namespace:x", "Topic:", "Topic", "Topic:**"]
)
def test_a_resource_that_is_not_what_it_seems_is_refused(text: str) -> None:
    with pytest.raises(ValueError, match="name"):
        parse_target(text)


@pytest.mark.parametrize("text", ["", "orders", "Queue:a"])
def test_a_text_that_names_no_kind(text: str) -> None:
    assert parse_target(text) is None
