"""Signatures and rights."""

from __future__ import annotations

import asyncio

import grpc
from tests.grpc_front.cases import WITH_ACCOUNTS, case_on
from tests.support.grpc_client import Account, authorization, defs, message, producer_settings
from tests.support.grpc_front import Front, new_name
from tests.support.patience import PATIENCE_S

from rocketline.admin.accounts import one_entry
from rocketline.protocol.bodies.access import UserInfo

Code = defs.Code


async def new_account(front: Front, *entries: str, actions: tuple[str, ...] = ("Pub",)) -> Account:
    account = Account(new_name("user"), "a long secret")
    accounts = (await front.broker()).accounts
    await accounts.create_user(UserInfo(username=account.name, password=account.secret, user_type="Normal"))
    if entries:
        await accounts.put_acl(one_entry(f"User:{account.name}", entries, list(actions), "Allow"))
    await until_known(front, account, entries)
    return account


async def until_known(front: Front, account: Account, entries: tuple[str, ...]) -> None:
    """A proxy looks every second for what its broker noted."""
    topic = entries[0].removeprefix("Topic:") if entries else "nothing"
    async with asyncio.timeout(PATIENCE_S):
        while True:
            async with front.client(account=account) as client:
                status = (await client.route(topic)).status
            if status.code == Code.OK or (not entries and "is not found" not in status.message):
                return
            await asyncio.sleep(0.5)


@case_on(*WITH_ACCOUNTS)
async def c38_only_accounts_that_sign_rightly_are_served(front: Front) -> None:
    topic = await front.topic()
    good = await new_account(front, f"Topic:{topic}")
    strangers = {
        "none": {},
        "wrong secret": {"account": Account(good.name, "another secret")},
        "unknown": {"account": Account("nobody", "a long secret")},
        "no date": {"account": good, "headers": {"x-mq-date-time": None}},
        "no space": {"headers": {"authorization": "garbage"}},
    }
    for why, given in strangers.items():
        async with front.client(**{"account": None, **given}) as client:
            assert (await client.send(message(topic))).status.code == Code.UNAUTHORIZED, why
            received = await client.receive("group", topic)
            assert (received.code, received.kinds) == (Code.UNAUTHORIZED, ["status"]), why
            stream = client.telemetry()
            assert (await stream.tell(producer_settings(topic))).status.code == Code.UNAUTHORIZED, why
            assert await stream.read() is None
            assert await stream.code() == grpc.StatusCode.OK


@case_on(*WITH_ACCOUNTS)
async def c38_every_spelling_of_a_signature_is_understood(front: Front) -> None:
    topic = await front.topic()
    good = await new_account(front, f"Topic:{topic}")
    spellings = {
        "upper case": {},
        "lower case": {"upper": False},
        "of Go": {"upper": False, "suffix": "//Rocketmq"},
        "another algorithm's name": {"algorithm": "FOO"},
    }
    for which, how in spellings.items():
        for date in ("20260101T000000Z", "20010101T000000Z"):
            headers = {"authorization": authorization(good, date, **how), "x-mq-date-time": date}
            async with front.client(account=None, headers=headers) as client:
                assert (await client.send(message(topic))).status.code == Code.OK, which


@case_on(*WITH_ACCOUNTS)
async def c38_an_account_does_what_it_has_rights_for(front: Front) -> None:
    topic, other, group = await front.topic(), await front.topic(), await front.group()
    sender = await new_account(front, f"Topic:{topic}")
    nobody = await new_account(front)
    reader = await new_account(front, f"Topic:{topic}", f"Group:{group}", actions=("Sub",))
    async with front.client(account=nobody) as client:
        assert (await client.send(message(topic))).status.code == Code.UNAUTHORIZED
        assert (await client.recall(topic, "x")).status.code == Code.UNAUTHORIZED
    async with front.client(account=sender) as client:
        assert (await client.send(message(topic))).status.code == Code.OK
        assert (await client.send(message(other))).status.code == Code.UNAUTHORIZED
        assert (await client.receive(group, topic)).code == Code.UNAUTHORIZED
    async with front.consumer(group, topic, account=reader) as client:
        (got,) = await client.receive_until(group, topic, 1)
        assert (await client.ack(group, topic, got)).status.code == Code.OK
        assert (await client.send(message(topic))).status.code == Code.UNAUTHORIZED
        assert (await client.receive(group, other)).code == Code.UNAUTHORIZED
