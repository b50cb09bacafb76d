"""Each page is rendered once at a time, for all who ask for it."""

import asyncio
from collections.abc import Awaitable, Callable
from itertools import count
from time import monotonic

import pytest

from forewarn.console.rendered_pages import RenderedMain, RenderedPages


class Renderer:
    """Counts what it renders, and how many renderings run at once; they end when they may."""

    def __init__(self) -> None:
        self.made = 0
        self.most = 0
        self.version = 0
        self.has_begun, self.may_end = asyncio.Event(), asyncio.Event()
        self.may_end.set()
        self._running = 0

    async def render(self) -> RenderedMain:
        self._running += 1
        self.most = max(self.most, self._running)
        shown = self.version
        self.has_begun.set()
        await asyncio.sleep(0)
        await self.may_end.wait()
        self._running -= 1
        self.made += 1
        return RenderedMain(str(shown), b"page")

    def stamp(self) -> int:
        return self.version


async def ask(pages: RenderedPages, of: Renderer, key: str = "/") -> RenderedMain:
    return await pages.find(key, of.stamp, of.render)


def run(life: Callable[[RenderedPages, Renderer], Awaitable[None]], gap: float = 0) -> Renderer:
    renderer = Renderer()

    async def live() -> None:
        await life(RenderedPages(gap=gap), renderer)

    asyncio.run(live())
    return renderer


def test_many_who_ask_for_a_page_at_once_share_one_rendering() -> None:
    async def life(pages: RenderedPages, of: Renderer) -> None:
        found = await asyncio.gather(*(ask(pages, of) for _ in range(8)))
        assert {page.digest for page in found} == {"0"}

    assert run(life).made == 1


def test_page_is_made_again_after_a_change_and_for_others() -> None:
    async def life(pages: RenderedPages, of: Renderer) -> None:
        for version, key in ((1, "/"), (1, "/"), (2, "/"), (2, "/fleet"), (2, "/")):
            of.version = version
            assert (await ask(pages, of, key)).digest == str(version)

    assert run(life).made == 3


def test_changes_while_a_page_is_rendered_cost_one_more_rendering_after_it() -> None:
    async def life(pages: RenderedPages, of: Renderer) -> None:
        of.may_end.clear()
        async with asyncio.TaskGroup() as group:
            first, later = group.create_task(ask(pages, of)), []
            await of.has_begun.wait()
            for of.version in range(1, 6):
                later.append(group.create_task(ask(pages, of)))
                await asyncio.sleep(0)
            of.may_end.set()
        assert first.result().digest == "0"
        assert {page.result().digest for page in later} == {"5"}

    done = run(life)
    assert (done.made, done.most) == (2, 1)


def test_page_that_changes_all_the_time_is_rendered_every_so_often() -> None:
    async def life(pages: RenderedPages, of: Renderer) -> None:
        for of.version in count():
            await ask(pages, of)
            if monotonic() > end:
                return

    end = monotonic() + 0.5
    assert run(life, gap=0.2).made <= 4


def test_those_who_wait_for_a_page_that_fails_are_told_and_others_try_again() -> None:
    tried = 0

    async def fail() -> RenderedMain:
        nonlocal tried
        tried += 1
        await asyncio.sleep(0.01)
        raise ValueError("no such luck")

    async def life(pages: RenderedPages, of: Renderer) -> None:
        waiting = (pages.find("/", of.stamp, fail) for _ in range(3))
        told = await asyncio.gather(*waiting, return_exceptions=True)
        assert [str(each) for each in told] == ["no such luck"] * 3
        assert tried == 1
        assert (await ask(pages, of)).digest == "0"

    run(life)


def test_one_who_leaves_takes_the_page_from_nobody() -> None:
    async def life(pages: RenderedPages, of: Renderer) -> None:
        of.may_end.clear()
        async with asyncio.TaskGroup() as group:
            other = group.create_task(ask(pages, of))
            with pytest.raises(TimeoutError):
                await asyncio.wait_for(ask(pages, of), 0.001)
            of.may_end.set()
        assert other.result() == RenderedMain("0", b"page")

    assert run(life).made == 1
