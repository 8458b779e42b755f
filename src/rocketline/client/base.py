"""The common part of producers and consumers."""

from __future__ import annotations

from collections.abc import Sequence

from rocketline.client.address_server import checked_servers
from rocketline.client.identity import check_group, client_id
from rocketline.client.options import ClientOptions
from rocketline.client.session import ClientSession, open_session
from rocketline.errors import ConfigError
from rocketline.protocol.namespaces import Namespace


class GroupClient:
    """A client of one group: its names, its options, and its session while it is open."""

    def __init__(
        self,
        name_servers: str | Sequence[str] | None,
        group: str,
        options: ClientOptions,
        *,
        default_instance: str | None = None,
        stream: bool = False,
    ) -> None:
        """`name_servers`: `host:port`, several separated by ';' or in a list; or the URL of an address server; None: what
        the environment variable NAMESRV_ADDR says."""
        if not isinstance(options, ClientOptions):
            raise ConfigError(f"options: ClientOptions expected, not {options!r}")
        self._client_options = options
        self._namespace = Namespace(options.namespace)
        self._wire_group = check_group(self._namespace.wrap(group))
        self.group = self._namespace.unwrap(group)
        """The name without namespace."""
        instance = default_instance if options.instance_name is None else options.instance_name
        self.client_id = client_id(instance, ip=options.client_ip, unit=options.unit_name, stream=stream)
        self._name_servers = checked_servers(name_servers)
        self._session: ClientSession | None = None

    def _new_session(self) -> ClientSession:
        return open_session(self.client_id, self._name_servers, self._client_options)
