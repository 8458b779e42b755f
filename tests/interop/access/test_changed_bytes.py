"""Signed requests in which a signed byte was changed on the way: our broker does nothing for any of them."""

from __future__ import annotations

import json
from collections.abc import Iterator
from random import Random
from typing import Any, NamedTuple

import pytest
from tests.support.access.frames import Account, Peer, binary_frame, frame, signed
from tests.support.access.rights import BODIES
from tests.support.access.world import (
    CREATE_ACL,
    CREATE_USER,
    DELETE_USER,
    LIST_ACL,
    LIST_USER,
    NOBODY,
    ORDERS,
    OTHER,
    ROOT,
    Side,
    allow,
    send,
    send_fields,
)

from rocketline.auth import brake
from rocketline.protocol.codes import RequestCode
from rocketline.protocol.command import ONEWAY

CHANGES = 2000
SEED = 20_240_229
CHARACTERS = "\"\\'{}[],:=+/ \n\0\x01\x7f09azAZ*%üß€😀"


class Request(NamedTuple):
    code: int
    fields: dict[str, str]
    body: bytes


RIGHTS = {"subject": "User:nobody", "policies": [{"entries": [allow("*", "All")]}]}
USER = {"username": "intruder", "password": "p", "userType": "Super"}
REQUESTS = [
    Request(RequestCode.SEND_MESSAGE_V2, send_fields(ORDERS), b"pay 10 to Ann"),
    Request(RequestCode.SEND_MESSAGE_V2, send_fields(OTHER), b""),
    Request(CREATE_USER, {"username": "intruder"}, json.dumps(USER).encode()),
    Request(DELETE_USER, {"username": NOBODY.name}, b""),
    Request(CREATE_ACL, {"subject": "User:nobody"}, json.dumps(RIGHTS).encode()),
    Request(RequestCode.DELETE_TOPIC_IN_BROKER, {"topic": OTHER}, b""),
    Request(RequestCode.UPDATE_AND_CREATE_SUBSCRIPTIONGROUP, {}, BODIES[200]),
    Request(RequestCode.UPDATE_BROKER_CONFIG, {}, b"brokerPermission=4\n"),
]


class Changed(NamedTuple):
    request: Request
    where: str
    frame: bytes
    is_oneway: bool


def _changed_text(random: Random, text: str) -> str:
    """Another text: a character more, less, another, or two in each other's place."""
    while True:
        at = random.randrange(len(text) + 1)
        kind = random.randrange(4)
        if kind == 0:
            other = text[:at] + random.choice(CHARACTERS) + text[at:]
        elif kind == 1:
            other = text[:at] + text[at + 1 :]
        elif kind == 2:
            other = text[:at] + random.choice(CHARACTERS) + text[at + 1 :]
        else:
            other = text[: max(0, at - 2)] + text[max(0, at - 2) : at][::-1] + text[at:]
        if other != text:
            return other


def _changed_byte(random: Random, data: bytes, start: int, end: int) -> bytes:
    """One bit of a range is another."""
    at = random.randrange(start, end)
    return data[:at] + bytes((data[at] ^ 1 << random.randrange(8),)) + data[at + 1 :]


def _changes(random: Random, root: Account) -> Iterator[Changed]:
    while True:
        request = random.choice(REQUESTS)
        fields = root.sign(request.fields, request.body)
        flag = ONEWAY if random.randrange(4) == 0 else 0
        place = random.choice(["body", *fields, "bits"])
        made: dict[str, Any] = dict(fields)
        body = request.body
        if place == "body":
            body = _changed_text(random, body.decode()).encode()
        elif place != "bits":
            made[place] = _changed_text(random, made[place])
        if place == "bits":
            data = _flipped(random, request, fields, flag)
        elif flag == 0 and random.randrange(3) == 0:
            if "" in made.values():
                continue  # a binary header cannot tell an empty value from none
            data = binary_frame(request.code, made, body)
        else:
            data = frame(request.code, made, body, flag=flag)
        yield Changed(request, place, data, bool(flag))


def _flipped(random: Random, request: Request, fields: dict[str, Any], flag: int) -> bytes:
    """A frame as it is written, and then one bit of a value or of the body another."""
    data = frame(request.code, fields, request.body, flag=flag)
    value = json.dumps(fields[random.choice(list(fields))])[1:-1].encode()
    start = data.rindex(b': "' + value + b'"') + 3 if value else len(data) - len(request.body)
    return _changed_byte(random, data, start, max(start + 1, start + len(value))) if start < len(data) else data[:-1]


def _state(side: Side) -> list[bytes]:
    """What the requests would change."""
    codes = (LIST_USER, LIST_ACL, RequestCode.GET_ALL_TOPIC_CONFIG, RequestCode.GET_ALL_SUBSCRIPTIONGROUP_CONFIG)
    answers = [side.order(code, {"filter": "", "subjectFilter": ""}) for code in codes]
    return [*(answer.body for answer in answers), side.order(RequestCode.GET_BROKER_CONFIG).body]


def test_nothing_comes_of_a_request_with_a_changed_byte(ours: Side, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(brake, "MAX_GUESSES", 10 * CHANGES)
    changes = _changes(Random(SEED), ROOT)
    state, places = _state(ours), (ours.mark(ORDERS), ours.mark(OTHER))
    probe, good = signed(ROOT, RequestCode.GET_MIN_OFFSET, {"topic": ORDERS, "queueId": "0"}), 0
    done = 0
    while done < CHANGES:
        with Peer(ours.broker) as peer:
            # From here on the connection has sent well, and its topics are known.
            for _ in range(2):
                assert peer.ask(send(ROOT, ORDERS)).code == 0
                good += 1
            try:
                while done < CHANGES:
                    changed = next(changes)
                    done += 1
                    answer = peer.ask(changed.frame + (probe if changed.is_oneway else b""))
                    if changed.is_oneway:
                        assert answer.code == 0, "a one-way request was answered"
                    else:
                        assert answer.code == 16, changed
            except ConnectionError:
                pass  # what is no frame any more ends the connection
    assert (ours.mark(ORDERS), ours.mark(OTHER)) == (places[0] + good + 1, places[1] + 1)
    assert _state(ours) == state
