"""`python -m tests.replication.apache F4`: the same faults on a group of Apache's brokers, with its strictest settings.

Two brokers of 5.4.0 under one controller, allAckInSyncStateSet=true, no unclean election. The harness has to find losses
there, or it is blind: Apache's master drops a replica from its own view before the controller agreed (F3, F4), and does not
write down an epoch that begins where the last one did (F7).

Prints what was violated. Ends with 0 if something was, with 1 if the group kept all it had acknowledged. F0 is the control
without a fault. `make soak ARGS="--variant 'Apache 5.4.0'"` runs all of them and records what was found.
"""

from __future__ import annotations

import argparse
import asyncio
import json
import os
import signal
import sys
import tempfile
from contextlib import AsyncExitStack, suppress
from pathlib import Path
from typing import Self

from tests.crash.outcome import Outcome
from tests.replication.group import CLUSTER, GROUP, LEASE_MS, ReplicatedGroup
from tests.replication.links import Link
from tests.replication.load import GroupChecker, GroupLedger
from tests.replication.scenarios import run_round
from tests.replication.verdict import epochs_of, log_of, logs_equal
from tests.support.apache import TEST_CONF, ApacheCluster, free_port

from rocketline.coordination import GroupRecord, Member
from rocketline.errors import RocketlineError
from rocketline.protocol.codes import ResponseCode
from rocketline.protocol.command import Command
from rocketline.transport import RemotingClient

GET_SYNC_STATE_DATA = 1006
HEAP_MB = 256
WHOLE_S = 60.0


class _Java(ApacheCluster):
    """Single processes of Apache's, by name."""

    def launch(self, name: str, main_class: str, conf: dict[str, str], heap_mb: int) -> None:
        self._write_home()
        self._launch(name, (main_class, "-c", self._write_conf(name, conf)), heap_mb)

    def kill_one(self, name: str) -> None:
        process = self._processes.get(name)
        if process is not None:
            process.kill()
            self._forget(name)


class ApachePeer:
    """A broker of Apache's, as `group.Peer`."""

    def __init__(self, number: int, java: _Java, folder: Path) -> None:
        self.number, self.folder = number, folder
        self._java, self._name = java, f"broker{number}"
        self.port = free_port(-2, 0, 1)
        self.clients = Link(("127.0.0.1", self.port))
        self.followers = Link(("127.0.0.1", self.port + 1), ("127.0.0.1", free_port()))
        self.to_etcd: list[Link] = []
        self.conf: dict[str, str] = {}

    @property
    def address(self) -> str:
        return f"127.0.0.1:{self.port}"

    async def start(self) -> None:
        startup = "org.apache.rocketmq.broker.BrokerStartup"
        await asyncio.to_thread(self._java.launch, self._name, startup, self.conf, HEAP_MB)

    def kill(self) -> None:
        self._java.kill_one(self._name)

    def pause(self) -> None:
        os.kill(self._java.pids[self._name], signal.SIGSTOP)

    def resume(self) -> None:
        with suppress(ProcessLookupError):
            os.kill(self._java.pids[self._name], signal.SIGCONT)


class ApacheGroup(ReplicatedGroup):
    """Name server, controller and two brokers; what deciding is about, the controller is asked."""

    peers: list[ApachePeer]  # type: ignore[assignment]

    def __init__(self, folder: Path) -> None:
        folder.mkdir(parents=True, exist_ok=True)
        self._java = _Java(folder, jvm_options=("-XX:TieredStopAtLevel=1", "-XX:+UseSerialGC"), broker=False)
        self._folder = folder
        self._controller_port, self._namesrv_port = free_port(), free_port()
        self.peers = [ApachePeer(number, self._java, folder / f"m{number}") for number in (1, 2)]
        self._undo = AsyncExitStack()

    @property
    def lease_s(self) -> float:
        """There is none; faults last as long as with ours."""
        return LEASE_MS / 1000

    async def __aenter__(self) -> Self:
        async with AsyncExitStack() as undo:
            undo.callback(self._java.kill)
            self._remoting = RemotingClient()
            undo.push_async_callback(self._remoting.close)
            namesrv = {"listenPort": str(self._namesrv_port), "bindAddress": "127.0.0.1"}
            await asyncio.to_thread(
                self._java.launch, "namesrv", "org.apache.rocketmq.namesrv.NamesrvStartup", namesrv, 128
            )
            await asyncio.to_thread(
                self._java.launch,
                "controller",
                "org.apache.rocketmq.controller.ControllerStartup",
                self._controller_conf(),
                128,
            )
            for peer in self.peers:
                await self._connect_apache(peer, undo)
                await peer.start()
            self._undo = undo.pop_all()
        return self

    def _controller_conf(self) -> dict[str, str]:
        return {
            "controllerDLegerGroup": "group1",
            "controllerDLegerPeers": f"n0-127.0.0.1:{self._controller_port}",
            "controllerDLegerSelfId": "n0",
            "controllerStorePath": str(self._folder / "controller"),
            "mappedFileSize": str(16 << 20),
            "enableElectUncleanMaster": "false",
        }

    async def _connect_apache(self, peer: ApachePeer, undo: AsyncExitStack) -> None:
        peer.to_etcd.append(await undo.enter_async_context(Link(("127.0.0.1", self._controller_port))))
        await undo.enter_async_context(peer.followers)
        registered = f"127.0.0.1:{peer.port + 1}".encode(), peer.followers.address.encode()
        to_name_server = await undo.enter_async_context(
            Link(("127.0.0.1", self._namesrv_port), rewrite=(registered[0], registered[1]))
        )
        peer.conf = {
            **TEST_CONF,
            "brokerClusterName": CLUSTER,
            "brokerName": GROUP,
            "brokerIP1": "127.0.0.1",
            "brokerIP2": "127.0.0.1",
            "namesrvAddr": to_name_server.address,
            "listenPort": str(peer.port),
            "haListenPort": str(peer.port + 1),
            "storePathRootDir": str(peer.folder),
            "storePathCommitLog": str(peer.folder / "commitlog"),
            "storePathEpochFile": str(peer.folder / "epochFileCheckpoint"),
            "storePathBrokerIdentity": str(peer.folder / "brokerIdentity"),
            "enableControllerMode": "true",
            "controllerAddr": peer.to_etcd[0].address,
            "allAckInSyncStateSet": "true",
            "flushDiskType": "SYNC_FLUSH",
            "autoCreateTopicEnable": "true",
            "defaultTopicQueueNums": "4",
        }

    async def record(self) -> GroupRecord:
        command = Command(GET_SYNC_STATE_DATA, {}, json.dumps([GROUP]).encode())
        try:
            answer = await self._remoting.call(f"127.0.0.1:{self._controller_port}", command, 3.0)
        except RocketlineError:
            return GroupRecord()
        if answer.code != ResponseCode.SUCCESS:
            return GroupRecord()
        found = json.loads(answer.body).get("replicasInfoTable", {}).get(GROUP)
        if not found:
            return GroupRecord()
        in_sync = {int(item["brokerId"]): item for item in found["inSyncReplicas"]}
        known = in_sync | {int(item["brokerId"]): item for item in found["notInSyncReplicas"]}
        members = {key: Member(key, item["brokerAddress"], "", "") for key, item in known.items()}
        master = int(found.get("masterBrokerId") or 0)
        return GroupRecord(int(found["masterEpoch"]), max(master, 0), "", frozenset(in_sync), members=members)

    async def master(self) -> ApachePeer:  # type: ignore[override]
        record = await self.until(lambda record: record.master in record.members, "a master")
        return self.peer_of(record.master, record)  # type: ignore[return-value]

    async def routed_to(self, topic: str) -> str:
        return (await self.master()).address


async def run(folder: Path, seed: int, scenario: str) -> Outcome:
    outcome = Outcome(scenario, VARIANT, seed)
    ledger = GroupLedger()
    async with ApacheGroup(folder) as group:
        await run_round(group, scenario, ledger, seed, outcome, WHOLE_S)
        await logs_equal(group.peers)  # type: ignore[arg-type]
        master = await group.master()
        outcome.violations += await GroupChecker(ledger).check(master.address)
        outcome.acked = ledger.ack_count
        outcome.lost = sum(text.startswith("I1") for text in outcome.violations)
        one, other = (log_of(peer.folder) for peer in group.peers)
        if one != other:
            epochs = [epochs_of(peer.folder) for peer in group.peers]
            outcome.violations.append(f"R4: logs of {len(one)} and {len(other)} bytes differ, epochs {epochs}")
        outcome.violations.append(f"answers {dict(ledger.codes)}")
    return outcome


MUST_FAIL = ("F3", "F4", "F7")
VARIANT = "Apache 5.4.0"
MOST_SEEDS = 5


async def soak(folder: Path, seed: int, variant: str, runs: int = 1, *, scenario: str) -> Outcome:
    """For the table: what has to be found there is found, in one of a few runs; without a fault nothing is."""
    found = Outcome(scenario, variant, seed)
    for number in range(MOST_SEEDS if scenario in MUST_FAIL else runs):
        outcome = await run(folder / str(number), seed + number, scenario)
        lost = [text for text in outcome.violations if text[:2] in ("I1", "I3", "R4")]
        found.runs += 1
        found.acked += outcome.acked
        found.note("losses and logs that differ, as they must", len(lost))
        if scenario not in MUST_FAIL:
            found.violations += lost
        elif lost:
            return found
    if scenario in MUST_FAIL:
        found.violations.append(
            f"Apache's group kept everything in {found.runs} runs: this harness is blind for {scenario}"
        )
    return found


def main() -> int:
    parser = argparse.ArgumentParser(prog="python -m tests.replication.apache", description=__doc__)
    parser.add_argument("scenario", choices=["F0", *MUST_FAIL])
    parser.add_argument("--seed", type=int, default=1)
    options = parser.parse_args()
    with tempfile.TemporaryDirectory(prefix="rocketline-apache-") as folder:
        outcome = asyncio.run(run(Path(folder), options.seed, options.scenario))
    print(outcome)
    return 0 if any(text[:2] in ("I1", "I3", "R4") for text in outcome.violations) else 1


if __name__ == "__main__":
    sys.exit(main())
