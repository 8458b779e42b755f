"""Half messages the broker gave up on, asked about again when an operator wants that (323)."""

from __future__ import annotations

import pytest
from tests.unit.broker.parts import STORE_HOST, MakeParts, Parts, send_request
from tests.unit.broker.transacting import COMMIT, GIVEN_UP, Payer, bodies, check_after

from rocketline.broker.config import TransactionConfig
from rocketline.protocol.codes import RequestCode, ResponseCode
from rocketline.protocol.command import Command
from rocketline.protocol.message_ids import offset_id


@pytest.fixture
async def parts(make_parts: MakeParts) -> Parts:
    return make_parts(transactions=TransactionConfig(max_checks=1))


def resume(parts: Parts, message_id: str) -> Command:
    return parts.peer().ask(Command(RequestCode.RESUME_CHECK_HALF_MESSAGE, {"msgId": message_id, "topic": GIVEN_UP}))


async def test_one_that_was_given_up_is_asked_about_again_and_can_be_committed(parts: Parts) -> None:
    payer = Payer(parts)
    payer.half("U1")
    await check_after(parts, 10)
    assert len(payer.questions()) == 1
    await check_after(parts, 10)
    (given_up,) = parts.messages(GIVEN_UP)
    assert payer.questions() == []
    assert resume(parts, offset_id(STORE_HOST, given_up.log_offset)).code == ResponseCode.SUCCESS
    await check_after(parts, 10)
    (question,) = payer.questions()
    assert question.message.message_id == "U1"
    payer.end(question.half, COMMIT, from_check=True)
    assert bodies(parts) == [b"pay"]


@pytest.mark.parametrize("text", ["", "nonsense", "00" * 15, "zz" * 16])
async def test_what_is_no_offset_id_is_refused(parts: Parts, text: str) -> None:
    answer = resume(parts, text)
    assert (answer.code, "offset message id" in (answer.remark or "")) == (ResponseCode.INVALID_PARAMETER, True)


async def test_no_other_message_can_be_made_a_half_message(parts: Parts) -> None:
    parts.peer().ask(send_request())
    parts.dispatch()
    (message,) = parts.messages("orders")
    for log_offset in (message.log_offset, 1 << 40):
        answer = resume(parts, offset_id(STORE_HOST, log_offset))
        assert (answer.code, f"no message of {GIVEN_UP}" in (answer.remark or "")) == (ResponseCode.SYSTEM_ERROR, True)
