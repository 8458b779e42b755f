"""The gRPC front and Apache's proxy, held to the same cases (`cases/`)."""

from __future__ import annotations

import pytest
from tests.grpc_front.cases import pairs

pytestmark = [pytest.mark.interop, pytest.mark.xdist_group("grpc conformance")]


@pytest.mark.parametrize(("side", "case"), pairs())
def test_case(side, case, outcomes):
    error = outcomes[side, case]
    if error is not None:
        raise error
