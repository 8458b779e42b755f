"""What people do on a page, and what they read there."""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable
from typing import TypeVar

from playwright.async_api import Locator, Page
from tests.support.patience import PATIENCE_S

T = TypeVar("T")
DONE, FAILED = "[data-result=ok]", "[data-result=failed]"


async def submit(page: Page, button: str = "main button.primary") -> None:
    async with page.expect_navigation():
        await page.click(button)


async def main_text(page: Page) -> str:
    return await page.locator("main").inner_text()


async def reload_until(page: Page, probe: Callable[[], Awaitable[T]], wanted: Callable[[T], bool]) -> T:
    """Load the page again until it shows something that comes by itself."""
    async with asyncio.timeout(PATIENCE_S):
        while not wanted(value := await probe()):
            await page.reload()
    return value


async def changed(page: Page) -> None:
    """A change was made, and every part of it went well."""
    assert await page.locator(DONE).count() == 1, await main_text(page)


def row(page: Page, text: str) -> Locator:
    return page.locator("main tbody tr").filter(has_text=text)


async def column(page: Page, number: int, table: str = "main table.rows") -> list[str]:
    """The texts of a column of the first such table."""
    return await page.locator(table).first.locator(f"tbody tr td:nth-child({number})").all_inner_texts()
