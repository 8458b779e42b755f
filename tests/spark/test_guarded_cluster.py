"""Source and sink on a cluster of ours that asks for accounts: an account with rights, one without, and none."""

from __future__ import annotations

import asyncio
from collections.abc import Iterator
from typing import TYPE_CHECKING

import pytest

from rocketline.admin import Admin
from rocketline.admin.accounts import one_entry, wait_until_known
from rocketline.client import Credentials
from rocketline.client.bulk.reader import BulkReader
from rocketline.protocol.bodies import UserInfo
from rocketline.testing import LocalCluster

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

WRITER = {"rocketmq.accessKey": "writer", "rocketmq.secretKey": "writer-secret"}
READER = {"rocketmq.accessKey": "reader", "rocketmq.secretKey": "reader-secret"}
RIGHTS = {"writer": ["Pub", "Create"], "reader": ["Sub"]}
GROUP = "spark_readers"


@pytest.fixture(scope="module")
def guarded() -> Iterator[LocalCluster]:
    with LocalCluster(users={"admin": "admin-secret"}) as cluster:
        asyncio.run(make_accounts(cluster.namesrv))
        yield cluster


async def make_accounts(namesrv: str) -> None:
    async with Admin(namesrv, credentials=Credentials("admin", "admin-secret")) as admin:
        (broker,) = await admin.brokers()
        for name, actions in RIGHTS.items():
            await broker.accounts.create_user(UserInfo(f"{name}-secret", username=name))
            resources = ["Topic:lake"] if name == "writer" else ["Topic:lake", f"Group:{GROUP}"]
            await broker.accounts.put_acl(one_entry(f"User:{name}", resources, actions, "Allow"))
            assert await wait_until_known(admin, name, f"{name}-secret")


def test_what_the_account_may(spark: SparkSession, guarded: LocalCluster) -> None:
    rows = spark.createDataFrame([(b"one",), (b"two",)], "body binary")

    def write(account: dict[str, str]) -> None:
        options = {"namesrv": guarded.namesrv, "topic": "lake", **account}
        rows.write.format("rocketmq").options(**options).mode("append").save()

    def read(account: dict[str, str]) -> set[bytes]:
        options = {"namesrv": guarded.namesrv, "subscribe": "lake", "group": GROUP, **account}
        return {bytes(row.body) for row in spark.read.format("rocketmq").options(**options).load().collect()}

    write(WRITER)
    assert read(READER) == {b"one", b"two"}
    # To ask about all queues of a topic at once needs another right than to read them.
    with BulkReader(guarded.namesrv, group=GROUP, credentials=Credentials("reader", "reader-secret")) as reader:
        bounds = reader.all_bounds(reader.queues("lake"))
        assert sum(each.end - each.begin for each in bounds.values()) == 2
    for work, account, reason in (
        (write, READER, "no permission to access Topic:lake"),
        (read, WRITER, "no permission to access"),
        (read, {**READER, "rocketmq.secretKey": "guessed"}, "check signature failed"),
        (write, {}, "username cannot be null"),
    ):
        with pytest.raises(Exception, match="answer 16") as caught:
            work(account)
        assert reason in str(caught.value) and "-secret" not in str(caught.value)
