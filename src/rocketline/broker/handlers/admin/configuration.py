"""The settings of a broker: show them (26), change them while it runs (25); `broker/changes.py` says which and how."""

from __future__ import annotations

from rocketline.async_table import when_saved
from rocketline.broker.changes import MAX_CHANGE_BYTES, ChangingConfig
from rocketline.broker.wiring import wired
from rocketline.errors import ConfigError, RequestRejected
from rocketline.protocol.bodies import encode_body
from rocketline.protocol.codes import RequestCode, ResponseCode
from rocketline.protocol.command import Command
from rocketline.settings import as_properties
from rocketline.transport import Channel, Handler, Reply


@wired
class ConfigurationHandlers:
    config: ChangingConfig

    def routes(self) -> dict[int, Handler]:
        return {RequestCode.GET_BROKER_CONFIG: self.get, RequestCode.UPDATE_BROKER_CONFIG: self.update}

    def get(self, channel: Channel, request: Command) -> Reply:
        version = encode_body(self.config.version).decode()
        return request.reply(ResponseCode.SUCCESS, {"version": version}, as_properties(self.config.current).encode())

    def update(self, channel: Channel, request: Command) -> Reply:
        if len(request.body) > MAX_CHANGE_BYTES:
            raise RequestRejected(
                ResponseCode.INVALID_PARAMETER, f"{len(request.body)} bytes are more than {MAX_CHANGE_BYTES}"
            )
        try:
            saving = self.config.change(request.body.decode(), channel.remote)
        except (ConfigError, UnicodeDecodeError) as error:
            raise RequestRejected(ResponseCode.NO_PERMISSION, str(error)) from error
        return when_saved([saving], lambda: request.reply(ResponseCode.SUCCESS))
