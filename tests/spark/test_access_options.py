"""Credentials and TLS as options of Spark's source and sink, without Spark."""

from __future__ import annotations

import asyncio
import pickle
import shutil
from collections.abc import AsyncIterator
from pathlib import Path
from typing import Any

import pytest
from pyspark import SparkFiles
from tests.support.tls import CA_FILE, CLIENT_CERTIFICATE, is_signed_by, tls_front
from tests.unit.client.fakes import FakeCluster, fake_cluster

from rocketline.errors import ConfigError
from rocketline.message import MessageQueue
from rocketline.protocol.codes import RequestCode
from rocketline.protocol.signing import Credentials
from rocketline.spark.access_options import client_options
from rocketline.spark.connections import borrowed_reader
from rocketline.spark.live.options import LiveOptions
from rocketline.transport.access import Access
from rocketline.transport.tls import Tls

ACCOUNT = {"rocketmq.accessKey": "shop", "rocketmq.secretKey": "secret-12345678"}
CERTIFICATE = {
    "rocketmq.tls.certificate": str(CLIENT_CERTIFICATE["certificate"]),
    "rocketmq.tls.key": str(CLIENT_CERTIFICATE["key"]),
    "rocketmq.tls.keyPassword": CLIENT_CERTIFICATE["key_password"],
}


def parse(namesrv: str = "127.0.0.1:9876", **given: str) -> LiveOptions:
    # Spark hands names over in lower case.
    options = {"namesrv": namesrv, "subscribe": "T", **given}
    return LiveOptions.parse({name.lower(): value for name, value in options.items()})


@pytest.mark.parametrize(
    ("given", "access"),
    [
        ({}, Access()),
        ({"rocketmq.namesrv.addr": "127.0.0.1:9876"}, Access()),
        ({"rocketmq.tls": "false"}, Access()),
        (ACCOUNT, Access(Credentials("shop", "secret-12345678"))),
        ({**ACCOUNT, "rocketmq.securityToken": "t"}, Access(Credentials("shop", "secret-12345678", "t"))),
        ({"rocketmq.tls": "true"}, Access(None, Tls())),
        ({"rocketmq.tls": "TRUE", "rocketmq.tls.caFile": "/ca.pem"}, Access(None, Tls(ca_file="/ca.pem"))),
        ({"rocketmq.tls": "true", "rocketmq.tls.verify": "false"}, Access(None, Tls(verify=False))),
        ({"rocketmq.tls": "true", "rocketmq.tls.checkHost": "false"}, Access(None, Tls(check_host=False))),
        (
            {"rocketmq.tls": "true", **CERTIFICATE},
            Access(None, Tls(**{**CLIENT_CERTIFICATE, "certificate": CERTIFICATE["rocketmq.tls.certificate"],
                                "key": CERTIFICATE["rocketmq.tls.key"]})),
        ),
    ],
)  # fmt: skip
def test_what_they_mean(given: dict[str, str], access: Access) -> None:
    assert parse(**given).endpoint.access == access


@pytest.mark.parametrize(
    ("given", "problem"),
    [
        ({"rocketmq.accessKey": "shop"}, "'rocketmq.secretKey' is missing"),
        ({"rocketmq.secretKey": "secret-12345678"}, "'rocketmq.accessKey' is missing"),
        ({"rocketmq.securityToken": "secret-12345678"}, "'rocketmq.accessKey' is missing"),
        ({"rocketmq.tls.caFile": "/ca.pem"}, "rocketmq.tls.caFile has no effect without rocketmq.tls=true"),
        ({"rocketmq.tls": "yes"}, "'rocketmq.tls' must be true or false"),
        ({"rocketmq.tls": "true", "rocketmq.tls.key": "/k"}, "needs the certificate"),
        ({"rocketmq.tls": "true", "rocketmq.tls.caFile": "/c", "rocketmq.tls.verify": "false"}, "verify=False"),
        ({**ACCOUNT, "rocketmq.secretKeys": "secret-12345678"}, "did you mean 'rocketmq.secretKey'"),
        ({"rocketmq.tls.ca": "/c"}, "did you mean 'rocketmq.tls.caFile'"),
        ({"rocketmq.client.threads": "secret-12345678"}, "there are accessKey, secretKey, .*: credentials and TLS"),
    ],
)
def test_what_makes_no_sense_is_refused_without_showing_values(given: dict[str, str], problem: str) -> None:
    with pytest.raises(ConfigError, match=f"^rocketmq: .*{problem}") as caught:
        parse(**given)
    assert "secret-12345678" not in str(caught.value)


def test_secrets_are_in_no_text_and_arrive_with_the_tasks() -> None:
    options = parse(**ACCOUNT, **{"rocketmq.securityToken": "secret-token", "rocketmq.tls": "true"}, **CERTIFICATE)
    text = f"{options} {options.endpoint!r} {options.endpoint.access}"
    for secret in ("secret-12345678", "secret-token", repr(CLIENT_CERTIFICATE["key_password"])):
        assert secret not in text
    assert pickle.loads(pickle.dumps(options)) == options
    assert hash(options.endpoint) != hash(parse(**ACCOUNT).endpoint)
    assert client_options(ACCOUNT) == {"credentials": Credentials("shop", "secret-12345678"), "tls": False}


@pytest.fixture
async def cluster() -> AsyncIterator[FakeCluster]:
    async with fake_cluster() as made:
        made.add_topic("T", 1)
        made.broker.store("T", 0, b"stored")
        yield made


async def test_tasks_sign_and_encrypt(cluster: FakeCluster) -> None:
    async with tls_front(cluster.namesrv) as namesrv, tls_front(cluster.broker.address) as broker:
        cluster.name_server.routes["T"].broker_datas[0].broker_addrs[0] = broker
        options = parse(namesrv, **ACCOUNT, **{"rocketmq.tls": "true", "rocketmq.tls.caFile": str(CA_FILE)})

        def task(endpoint: Any) -> list[bytes]:
            with borrowed_reader(endpoint) as reader:
                replies = list(reader.read(MessageQueue("T", "broker-a", 0), 0, 1))
                reader.close()
            return [message.body for reply in replies for message in reply.messages()]

        assert await asyncio.to_thread(task, pickle.loads(pickle.dumps(options.endpoint))) == [b"stored"]
    requests = cluster.name_server.requests + cluster.broker.requests
    assert {request.code for request in requests} == {
        RequestCode.GET_ROUTEINFO_BY_TOPIC, RequestCode.PULL_MESSAGE,
    }  # fmt: skip
    assert all(is_signed_by(request, "shop", "secret-12345678") for request in requests)


@pytest.fixture
def shipped(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """The folder of shipped files, as a task knows it."""
    monkeypatch.setattr(SparkFiles, "_is_running_on_worker", True)
    monkeypatch.setattr(SparkFiles, "_root_directory", str(tmp_path))
    return tmp_path


@pytest.mark.parametrize("given", ["ca.pem", "/only/on/the/driver/ca.pem"])
def test_a_file_is_found_by_name_among_those_shipped_with_the_job(shipped: Path, given: str) -> None:
    shutil.copy(CA_FILE, shipped)
    options = {"rocketmq.tls": "true", "rocketmq.tls.caFile": given, **CERTIFICATE}
    endpoint = pickle.loads(pickle.dumps(parse(**options).endpoint))
    for found in (endpoint.client_options["tls"], client_options(options)["tls"]):
        assert found.ca_file == str(shipped / "ca.pem")
        # What is where the option says stays.
        assert (found.certificate, found.key) == tuple(
            map(str, (CLIENT_CERTIFICATE[name] for name in ("certificate", "key")))
        )
        found.context()
    assert endpoint.access.tls.ca_file == given, "another executor looks for itself"


@pytest.mark.parametrize("name", ["caFile", "certificate", "key"])
def test_a_file_that_is_nowhere_is_named_with_what_to_do(shipped: Path, name: str) -> None:
    options = {"rocketmq.tls": "true", **CERTIFICATE, f"rocketmq.tls.{name}": "/not/here.pem"}
    with pytest.raises(ConfigError, match=r"/not/here.pem does not exist on .*, and no here.pem was shipped .*--files"):
        parse(**options).endpoint.reader()


def test_without_a_job_nothing_is_shipped() -> None:
    with pytest.raises(ConfigError, match="no never-shipped was shipped with the job"):
        client_options({"rocketmq.tls": "true", "rocketmq.tls.caFile": "never-shipped"})
