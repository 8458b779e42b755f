"""The ready frame of a stored send says exactly what the general encoder would say."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from rocketline.protocol.codes import RequestCode
from rocketline.protocol.command import JSON, RESPONSE, ROCKETMQ, Command
from rocketline.protocol.connection import Connection
from rocketline.protocol.headers import SendMessageResponseHeader
from rocketline.protocol.message_ids import encode_host, offset_id
from rocketline.protocol.stored_answer import StoredAnswer

HOST = encode_host("127.0.0.1", 10911)


@given(
    log_offset=st.integers(0, (1 << 63) - 1),
    queue_id=st.integers(0, 65535),
    queue_offset=st.integers(0, (1 << 63) - 1),
    opaque=st.integers(-(1 << 31), (1 << 31) - 1),
    unique=st.text("0123456789ABCDEF", min_size=1, max_size=56),
    region=st.text(st.characters(exclude_categories=["Cs"]), min_size=1, max_size=20),
    trace_on=st.booleans(),
    ip=st.sampled_from(["127.0.0.1", "::1"]),
    encoding=st.sampled_from([JSON, ROCKETMQ]),
)
def test_it_equals_the_general_answer(
    log_offset: int,
    queue_id: int,
    queue_offset: int,
    opaque: int,
    unique: str,
    region: str,
    trace_on: bool,
    ip: str,
    encoding: int,
) -> None:
    host = encode_host(ip, 10911)
    request = Command(RequestCode.SEND_MESSAGE_V2, {}, opaque=opaque, encoding=encoding)
    frame = StoredAnswer(host, region, trace_on).frame(request, log_offset, queue_id, queue_offset, unique)
    assert frame is not None
    (answer,) = Connection().receive(frame)
    assert (answer.code, answer.flag, answer.opaque, answer.remark) == (0, RESPONSE, opaque, None)
    general = request.reply(0)
    assert answer.encoding == encoding
    assert (answer.version, answer.language, answer.body) == (general.version, general.language, b"")
    assert SendMessageResponseHeader.decode(answer) == SendMessageResponseHeader(
        msg_id=offset_id(host, log_offset),
        queue_id=queue_id,
        queue_offset=queue_offset,  # type: ignore[arg-type]
        transaction_id=unique,
        region=region,
        trace_on=trace_on,
    )


@pytest.mark.parametrize("unique", ["", 'a"b', "a b", "ключ", "a\\b"])
def test_an_id_that_needs_escaping_takes_the_general_road(unique: str) -> None:
    request = Command(RequestCode.SEND_MESSAGE_V2, encoding=JSON)
    assert StoredAnswer(HOST, "DefaultRegion", True).frame(request, 0, 0, 0, unique) is None
