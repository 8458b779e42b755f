"""What an operator finds out about messages, on Apache's cluster (tests/unit/admin/test_looking.py: on ours)."""

from __future__ import annotations

import pytest
from tests.support.apache import ApacheCluster
from tests.support.looking import CHECKS, Check

from rocketline.admin import Admin

pytestmark = pytest.mark.interop


@pytest.mark.parametrize("check", CHECKS, ids=lambda check: check.__name__)
async def test_apaches_cluster(check: Check, apache: ApacheCluster) -> None:
    async with Admin(apache.namesrv) as admin:
        await check(admin)
