"""The record of a group in etcd, over the JSON gateway that every etcd server has on its client port.

    /rocketline/CLUSTER/GROUP/record      the `GroupRecord`
    /rocketline/CLUSTER/GROUP/live/ID     what member ID says of itself, with a lease

A record is compared by the revision at which it was last written. Reads are linearizable, etcd's default. Each request has a
time limit and goes to one server after the other until one answers. So it may be carried out twice, or after its time limit:
a comparison that fails can mean that the first attempt succeeded, and whoever asked has to read again.
"""

from __future__ import annotations

import asyncio
import logging
from base64 import b64decode, b64encode
from collections.abc import AsyncGenerator
from contextlib import aclosing, suppress
from dataclasses import replace
from typing import Any
from urllib.parse import quote

from rocketline.coordination.config import CoordinationConfig
from rocketline.coordination.coordinator import Agreed, Live, View
from rocketline.coordination.http_json import Endpoint, HttpConnection, HttpFailed
from rocketline.coordination.record import GroupRecord
from rocketline.errors import CoordinationFailed

log = logging.getLogger(__name__)

WATCH_AGAIN_S = 0.5
"""Pause before a broken watch is made anew."""
SAY_AGAIN_S = 60.0
"""How old the end of a log may be that a member says of itself, unless it may lack something."""
UNAUTHENTICATED = 16
"""gRPC's code for a token that is not known (any more)."""
_NO_ANSWER = (OSError, EOFError, HttpFailed, TimeoutError, ValueError)


class EtcdCoordinator:
    """A member's view of its group in etcd."""

    def __init__(self, config: CoordinationConfig, cluster: str, group: str) -> None:
        self.lease_s = config.lease_ms / 1000
        self._root = f"/rocketline/{quote(cluster, safe='')}/{quote(group, safe='')}/"
        self._record_key = f"{self._root}record"
        self._gateway = _Gateway(config)
        self._lease = 0
        self._said: tuple[int, Live, float] | None = None
        """What was put last under the lease: for which member, and when; None: nothing that is known to be there."""

    async def read(self) -> View:
        answer = await self._gateway.call("kv/range", {"key": _text(self._root), "range_end": _text(_end(self._root))})
        agreed, live, revisions = None, {}, {}
        for item in answer.get("kvs", ()):
            key, value = b64decode(item["key"]).decode(), b64decode(item.get("value", ""))
            revision = int(item["mod_revision"])
            if key == self._record_key:
                agreed = Agreed(GroupRecord.decode(value, f"{key} in etcd"), revision)
            elif (name := key.rpartition("/")[2]).isdecimal():
                live[int(name)] = Live.decode(value, f"{key} in etcd")
                revisions[int(name)] = revision
        if self._said is not None and live.get(self._said[0]) != self._said[1]:
            self._said = None
        return View(agreed, live, revisions)

    async def propose(self, old: Agreed | None, new: GroupRecord) -> bool:
        return await self._replace([self._unchanged(old)], new)

    async def elect(self, view: View, new: GroupRecord) -> bool:
        if view.agreed is None or view.has_master:
            return False
        master = view.agreed.record.master
        as_seen = _compare(self._live_key(master), view.revisions.get(master, 0))
        return await self._replace([self._unchanged(view.agreed), as_seen], new)

    async def renew(self, member_id: int, live: Live) -> None:
        if not self._lease or not await self._keep_alive():
            answer = await self._gateway.call("lease/grant", {"TTL": str(round(self.lease_s)), "ID": "0"})
            self._lease, self._said = int(answer["ID"]), None
        now = asyncio.get_running_loop().time()
        if self._is_said(member_id, live, now):
            return
        key = _text(self._live_key(member_id))
        try:
            await self._gateway.call("kv/put", {"key": key, "value": _text(live.encode()), "lease": str(self._lease)})
        except CoordinationFailed:
            self._lease, self._said = 0, None  # perhaps it ended just now: the next renewal begins with a new one
            raise
        self._said = member_id, live, now

    def _is_said(self, member_id: int, live: Live, now: float) -> bool:
        """Whether etcd knows it, but for the end of a whole log, which moves all the time: etcd keeps each value."""
        if self._said is None or now - self._said[2] >= SAY_AGAIN_S:
            return False
        said_id, said, _ = self._said
        return said_id == member_id and live == (said if live.may_lack else replace(said, log_end=live.log_end))

    async def resign(self) -> None:
        lease, self._lease, self._said = self._lease, 0, None
        if lease:
            await self._gateway.call("lease/revoke", {"ID": str(lease)})

    async def changes(self) -> AsyncGenerator[None, None]:
        request = {"create_request": {"key": _text(self._root), "range_end": _text(_end(self._root))}}
        while True:
            try:
                async with aclosing(self._gateway.stream("watch", request)) as answers:
                    async for answer in answers:
                        if answer.get("result", {}).get("canceled"):
                            break
                        yield None
            except CoordinationFailed as error:
                log.debug("watch of %s: %s", self._root, error)
            await asyncio.sleep(WATCH_AGAIN_S)

    async def close(self) -> None:
        self._gateway.close()

    async def _keep_alive(self) -> bool:
        """Whether the lease still was there."""
        answer = await self._gateway.call("lease/keepalive", {"ID": str(self._lease)})
        return int(answer.get("result", {}).get("TTL", 0)) > 0

    async def _replace(self, compare: list[dict[str, str]], new: GroupRecord) -> bool:
        put = {"request_put": {"key": _text(self._record_key), "value": _text(new.encode())}}
        answer = await self._gateway.call("kv/txn", {"compare": compare, "success": [put]})
        return bool(answer.get("succeeded", False))

    def _unchanged(self, agreed: Agreed | None) -> dict[str, str]:
        return _compare(self._record_key, agreed.revision if agreed else 0)

    def _live_key(self, member_id: int) -> str:
        return f"{self._root}live/{member_id}"


def _compare(key: str, revision: int) -> dict[str, str]:
    """Revision 0: there is no such key."""
    return {"key": _text(key), "target": "MOD", "result": "EQUAL", "mod_revision": str(revision)}


def _text(value: str | bytes) -> str:
    return b64encode(value.encode() if isinstance(value, str) else value).decode()


def _end(prefix: str) -> str:
    """The first key after all that begin with `prefix`."""
    return prefix[:-1] + chr(ord(prefix[-1]) + 1)


class _Gateway:
    """Requests to whichever etcd server answers; the one that answered last is asked first."""

    def __init__(self, config: CoordinationConfig) -> None:
        self._endpoints = config.endpoints()
        self._user, self._password = config.user, config.password
        # Three servers may be tried within a lease, and one of them may be silent.
        self._timeout_s = config.lease_ms / 1000 / 3
        self._token = ""
        self._idle: dict[Endpoint, HttpConnection] = {}

    async def call(self, method: str, value: dict[str, Any]) -> Any:
        problems = []
        for endpoint in list(self._endpoints):
            try:
                async with asyncio.timeout(self._timeout_s):
                    answer = await self._ask(endpoint, method, value)
            except _NO_ANSWER as error:
                self._endpoints.append(self._endpoints.pop(self._endpoints.index(endpoint)))
                problems.append(f"{endpoint}: {_reason(error, self._timeout_s)}")
            else:
                return answer
        raise CoordinationFailed(
            f"etcd gave no answer to {method} ({'; '.join(problems)}): see that a majority of its servers runs, and that "
            "rocketline.coordination names them"
        )

    async def stream(self, method: str, value: dict[str, Any]) -> AsyncGenerator[Any, None]:
        endpoint = self._endpoints[0]
        connection = None
        try:
            async with asyncio.timeout(self._timeout_s):
                await self._log_in(endpoint)
                connection = await HttpConnection.open(endpoint)
            async with aclosing(connection.stream(f"/v3/{method}", value, self._token)) as answers:
                async for answer in answers:
                    yield answer
        except _NO_ANSWER as error:
            raise CoordinationFailed(f"etcd, {endpoint}: {_reason(error, self._timeout_s)}") from error
        finally:
            if connection is not None:
                connection.close()

    async def _ask(self, endpoint: Endpoint, method: str, value: object) -> Any:
        await self._log_in(endpoint)
        status, answer = await self._post(endpoint, method, value)
        if status == 401 or answer.get("code") == UNAUTHENTICATED or "invalid auth token" in answer.get("error", ""):
            self._token = ""
            await self._log_in(endpoint)
            status, answer = await self._post(endpoint, method, value)
        if status == 200:
            return answer
        problem = answer.get("message") or answer.get("error") or f"status {status}"
        if status < 500 and status != 408:
            hint = "; set rocketline.coordinationUser and its password" if "user name is empty" in problem else ""
            raise CoordinationFailed(f"etcd, {endpoint}, refused {method}: {problem}{hint}")
        raise HttpFailed(problem)

    async def _log_in(self, endpoint: Endpoint) -> None:
        if not self._user or self._token:
            return
        login = {"name": self._user, "password": self._password}
        status, answer = await self._post(endpoint, "auth/authenticate", login)
        if status != 200:
            problem = answer.get("message") or answer.get("error") or f"status {status}"
            raise CoordinationFailed(f"etcd, {endpoint}, does not let in user {self._user!r}: {problem}")
        self._token = answer["token"]

    async def _post(self, endpoint: Endpoint, method: str, value: object) -> tuple[int, Any]:
        kept = self._idle.pop(endpoint, None)
        if kept is not None:
            # The server may have closed it meanwhile.
            with suppress(EOFError, ConnectionError, HttpFailed):
                return await self._on(kept, method, value)
        return await self._on(await HttpConnection.open(endpoint), method, value)

    async def _on(self, connection: HttpConnection, method: str, value: object) -> tuple[int, Any]:
        try:
            status, answer = await connection.post(f"/v3/{method}", value, self._token)
        except BaseException:
            connection.close()
            raise
        older = self._idle.get(connection.endpoint)
        if older is not None:
            older.close()
        self._idle[connection.endpoint] = connection
        return status, answer if isinstance(answer, dict) else {}

    def close(self) -> None:
        for connection in self._idle.values():
            connection.close()
        self._idle.clear()


def _reason(error: BaseException, timeout_s: float) -> str:
    return f"no answer within {timeout_s:g} s" if isinstance(error, TimeoutError) else str(error) or repr(error)
