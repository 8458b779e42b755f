"""Case 1: `rocketline up --console` prints a link, and the link opens the console of that cluster."""

from __future__ import annotations

import re
import subprocess

import pytest
from playwright.async_api import Browser

from rocketline.cli.servers.child import cli_command, cli_environment

from .watched import watched_context

pytestmark = pytest.mark.asyncio(loop_scope="package")


async def test_up_with_a_console_prints_a_link_that_works(browser: Browser) -> None:
    ports = ("--namesrv-port", "0", "--broker-port", "0", "--console-port", "0")
    command = cli_command("up", "--console", *ports)
    with subprocess.Popen(command, stdout=subprocess.PIPE, text=True, env=cli_environment()) as process:
        try:
            assert process.stdout is not None
            lines = [process.stdout.readline() for _ in range(2)]
            (link,) = re.findall(r"ready console=(\S+)", "".join(lines))
            (namesrv,) = re.findall(r"ready namesrv=(\S+)", "".join(lines))
            async with watched_context(browser) as (context, _):
                page = await context.new_page()
                await page.goto(link)
                await page.wait_for_url(re.compile("/c/default/"))
                await page.locator("[data-cell=brokers]", has_text="1 / 1").wait_for()
                await page.locator(".side a", has_text="Brokers").click()
                await page.locator("li code", has_text=namesrv).wait_for()
        finally:
            process.terminate()
