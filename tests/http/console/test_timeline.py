"""/timeline: what addresses may say, and how much is drawn."""

from datetime import datetime, timedelta

import pytest
from starlette.testclient import TestClient
from tests.http.console.conftest import SECRETS, SignIn

from forewarn.console.audit import AuditFilters
from forewarn.console.fleet_filter import FleetFilter
from forewarn.console.timeline import TimelineView
from forewarn.desk.services import Services
from forewarn.domain.event import Draft, Outcome, Share, complete, start_unannounced
from forewarn.domain.names import ScopeId, VmName
from forewarn.domain.roles import Role
from forewarn.ports.store import Store, Transaction
from forewarn.protocol.vocabulary import EventId, EventSource, EventType


@pytest.fixture
def viewer(sign_in: SignIn) -> TestClient:
    return sign_in(SECRETS[Role.VIEWER])


@pytest.fixture
def now(services: Services) -> datetime:
    return services.clock.now()


def put_many(store: Store, now: datetime, count: int, scope: str = "availability-set/web") -> None:
    """Let *count* impacts happen at the same time."""

    def put(tx: Transaction) -> None:
        for number in range(count):
            where = scope.format(number)
            share = Share(scope_id=ScopeId(where), update_domain=0, resources=(VmName("web-0"),))
            draft = Draft(
                event_type=EventType.REBOOT, event_source=EventSource.PLATFORM, share=share
            )
            own = EventId(f"{number:032X}")
            event = start_unannounced(draft, event_id=own, now=now - timedelta(minutes=20))
            tx.put_event(complete(event, outcome=Outcome.SUCCEEDED, now=now))

    store.write(put)


@pytest.mark.parametrize(
    ("query", "problem"),
    [
        ("at=soon", "Time: &#39;soon&#39; is not a valid time such as 2026-03-02T12:00:00Z."),
        ("at=0001-01-01T00:00:00Z", "is not a valid time such as"),
        ("at=9999-12-31T23:59:59-14:00", "is not a valid time such as"),
        ("type=Nap", "Type: &#39;Nap&#39; is not one of Freeze, Reboot"),
        ("page=x", "page: enter a whole number"),
    ],
)
def test_address_that_says_nothing_sensible_is_refused(
    viewer: TestClient, query: str, problem: str
) -> None:
    answer = viewer.get(f"/timeline?{query}")

    assert answer.status_code == 422
    assert problem in answer.text


def test_address_may_be_anything_else(viewer: TestClient) -> None:
    for query in (
        "zoom=century",
        "by=moon",
        "page=99",
        "at=2026-01-05T08:00:00",
        "scope=%E2%80%AE",
    ):
        assert viewer.get(f"/timeline?{query}").status_code == 200


def test_what_does_not_fit_into_the_plot_is_said(
    viewer: TestClient, store: Store, now: datetime
) -> None:
    put_many(store, now, 60)

    page = viewer.get("/timeline?zoom=hour").text

    assert page.count('class="bar done"') == 8 + 1, "lanes, and the legend"
    assert "52 events did not fit in the plot." in page


def test_many_rows_have_pages(viewer: TestClient, store: Store, now: datetime) -> None:
    put_many(store, now, 60, "virtual-machine/vm-{:02}")

    first, last = viewer.get("/timeline").text, viewer.get("/timeline?page=3").text

    assert "Rows 1 to 25 of 60" in first
    assert "Rows 51 to 60 of 60" in last
    assert "vm-59" in last
    assert "vm-59" not in first


def test_names_of_others_do_no_harm(viewer: TestClient, store: Store, now: datetime) -> None:
    put_many(store, now, 1, "virtual-machine/<script>alert(1)</script>\N{RIGHT-TO-LEFT OVERRIDE}")

    for path in ("/timeline", "/timeline?by=host"):
        page = viewer.get(path).text
        assert "<script>alert" not in page
        assert "\N{RIGHT-TO-LEFT OVERRIDE}" not in page


def test_address_says_only_what_is_unusual() -> None:
    assert TimelineView().url() == "/timeline"
    assert TimelineView(scope="a b", page=3).url() == "/timeline?scope=a+b&page=3"
    assert FleetFilter(by="host").url(page=2) == "/fleet?by=host&page=2"
    assert FleetFilter(by="host", page=2).url(by="scope") == "/fleet"
    assert AuditFilters(who="ann", older_than=9).url() == "/audit?who=ann"
    assert AuditFilters(who="ann").url(9) == "/audit?who=ann&older_than=9"
