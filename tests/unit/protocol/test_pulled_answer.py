"""The ready head of an answer to a pull says exactly what the general encoder would say, byte for byte."""

from __future__ import annotations

from hypothesis import given
from hypothesis import strategies as st

from rocketline.protocol.codes import RequestCode, ResponseCode
from rocketline.protocol.command import JSON, ROCKETMQ, Command
from rocketline.protocol.connection import encode_frame
from rocketline.protocol.headers import PullMessageResponseHeader
from rocketline.protocol.pulled_answer import PulledAnswer

offsets = st.integers(0, (1 << 63) - 1)


@given(
    st.sampled_from([(ResponseCode.SUCCESS, "FOUND"), (ResponseCode.PULL_RETRY_IMMEDIATELY, "NO_MATCHED_MESSAGE")]),
    st.sampled_from([JSON, ROCKETMQ]),
    st.integers(-(1 << 31), (1 << 31) - 1),
    st.tuples(offsets, offsets, offsets),
    st.binary(max_size=300),
)
def test_it_equals_the_general_answer(
    form: tuple[ResponseCode, str], encoding: int, opaque: int, numbers: tuple[int, int, int], body: bytes
) -> None:
    code, remark = form
    request = Command(RequestCode.PULL_MESSAGE, {}, opaque=opaque, encoding=encoding)
    ext = PullMessageResponseHeader(*numbers).encode()  # type: ignore[arg-type]
    general = encode_frame(request.reply(code, ext, remark=remark, chunks=[body]))
    assert PulledAnswer(code, remark).head(encoding, opaque, *numbers, len(body)) == general[0]
