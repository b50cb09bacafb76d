"""How pages follow changes: the stream that tells of them, and answers to what has not changed."""

import asyncio
import re

import pytest
from starlette.testclient import TestClient
from tests.http.conftest import TOKEN

from forewarn.console.live import stream
from forewarn.console.pulse import Pulse
from forewarn.console.site import Site
from forewarn.desk.refusals import Refusals
from forewarn.desk.services import Services
from forewarn.desk.sessions import Sessions
from forewarn.files.fleet import read_fleet
from forewarn.operations.inventory import apply_fleet
from forewarn.ports.store import Store

PART = {"HX-Request": "true", "X-Live": "1"}


@pytest.fixture
def site(services: Services, store: Store) -> Site:
    """A console whose heart beats fast."""
    pulse = Pulse(heart_beat=0.01)
    store.listen(pulse.note)
    return Site(
        services=services, sessions=Sessions(services), refusals=Refusals(services), pulse=pulse
    )


def test_page_that_has_not_changed_is_not_sent_again(browser: TestClient) -> None:
    first = browser.get("/fleet", headers=PART)
    digest = re.search(r'"X-Have": "(\w+)"', first.text)
    assert digest is not None

    same = browser.get("/fleet", headers={**PART, "X-Have": digest[1]})
    changed = browser.get("/fleet", headers={**PART, "X-Have": "another"})

    assert (same.status_code, same.content) == (204, b"")
    assert (changed.status_code, changed.text) == (200, first.text)


def test_stream_tells_of_a_change(site: Site, store: Store, services: Services) -> None:
    secret = site.sessions.sign_in(TOKEN, "here")
    fleet = read_fleet({"virtual_machine": [{"name": "web-0"}]})

    async def follow() -> list[bytes]:
        lines = stream(site, secret)
        heard = [await anext(lines), await anext(lines)]
        before = heard[-1]
        store.write(lambda tx: apply_fleet(tx, services.context("alice"), fleet))
        async with asyncio.timeout(10):
            async for line in lines:
                if line != before:
                    return [*heard, line]
        return heard

    hello, before, after = asyncio.run(follow())

    assert hello.startswith(b"event: hello\ndata: ")
    assert before == f"data: {site.pulse.version - 1}\n\n".encode()
    assert after == f"data: {site.pulse.version}\n\n".encode()


def test_stream_ends_with_its_session(site: Site) -> None:
    secret = site.sessions.sign_in(TOKEN, "here")

    async def follow() -> None:
        lines = stream(site, secret)
        for _ in range(3):
            await anext(lines)
        site.sessions.end(secret, "here")
        site.visitors.note(secret, None)  # or it would be remembered for seconds
        async with asyncio.timeout(10):
            async for _ in lines:
                pass

    asyncio.run(follow())
