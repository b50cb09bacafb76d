"""Planning and starting over the console: once, as shown, and only what somebody may."""

import re
from collections.abc import Callable, Iterator
from typing import Any, TypeAlias

import httpx2
import pytest
from tests.browser.api import call, make_token

from forewarn.console.cookies import CSRF_HEADER
from forewarn.console.maintenance_form import course_fields
from forewarn.desk.courses import CourseRequest
from forewarn.testing.emulator import Emulator

FLEET = {
    "availability_set": [{"name": "web", "update_domains": 2}, {"name": "db", "update_domains": 2}],
    "virtual_machine": [
        {"name": "web-0", "availability_set": "web", "host": "kvm-1", "labels": {"tier": "web"}},
        {"name": "web-1", "availability_set": "web", "host": "kvm-2"},
        {"name": "db-0", "availability_set": "db", "host": "kvm-1"},
    ],
}
WEB = {"event_type": "Reboot", "scopes": "web"}


@pytest.fixture
def emulator() -> Iterator[Emulator]:
    with Emulator(fleet=FLEET) as running:
        yield running


@pytest.fixture
def visits(emulator: Emulator) -> Iterator["Visits"]:
    """Browsers of the admin, or of whoever has a token."""
    opened: list[Visitor] = []

    def visit(token: str = "") -> Visitor:
        opened.append(Visitor(emulator, token))
        return opened[-1]

    yield visit
    for visitor in opened:
        visitor.client.close()


class Visitor:
    """Somebody with a browser."""

    def __init__(self, emulator: Emulator, token: str = "") -> None:
        self.client = httpx2.Client(base_url=emulator.control_url, trust_env=False)
        answer = self.client.post(
            "/login", headers={"Authorization": f"Bearer {token or emulator.token}"}
        )
        assert answer.status_code == 204
        (self.proof,) = re.findall(r'X-CSRF-Token": "(\w+)', self.read("/maintenances"))

    def read(self, path: str) -> str:
        return self.client.get(path).text

    def post(self, path: str, **form: str) -> httpx2.Response:
        return self.client.post(path, data=form, headers={CSRF_HEADER: self.proof})

    def plan(self, **form: str) -> str:
        answer = self.post("/maintenances/plan", **form)
        assert answer.status_code == 200
        return answer.text


Visits: TypeAlias = Callable[..., Visitor]


def hidden(plan: str) -> dict[str, str]:
    """Return what the dialog of *plan* sends along."""
    return dict(re.findall(r'<input type="hidden" name="(\w+)" value="(\w+)">', plan))


def maintenances(emulator: Emulator) -> list[Any]:
    return list(call(emulator, "GET", "/maintenances")["maintenances"])


def test_form_has_every_field_of_a_course() -> None:
    asked = {name.removesuffix("_in_seconds") for name in CourseRequest.model_fields}

    assert {each.name for each in course_fields()} == asked - {"holidays", "holidays_zone"}


@pytest.mark.parametrize(
    ("form", "said"),
    [
        ({}, "Select scopes, virtual machines or hosts"),
        ({"scopes": "nowhere"}, "machine &#39;nowhere&#39;"),
        ({"by": "hosts", "hosts": "nowhere"}, "Unknown host &#39;nowhere&#39;"),
        ({"labels": "tier"}, "Virtual machine labels: &#39;tier&#39; is not KEY=VALUE."),
        ({"labels": "tier=1,tier=2"}, "Virtual machine labels: &#39;tier&#39; is given twice"),
        ({**WEB, "at_once": "some"}, "At once: &#39;some&#39; is not a number."),
        ({**WEB, "at_once": "0"}, "At once: "),
        ({**WEB, "duration": "soon"}, "Impact duration: Invalid duration &#39;soon&#39;"),
        ({**WEB, "windows": "Someday 1-2"}, "Someday 1-2"),
        (
            {**WEB, "canary": "db"},
            "The canary &#39;db&#39; is not among the selected scopes or hosts.",
        ),
        ({**WEB, "min_available": "100"}, "This maintenance cannot be started."),
        ({**WEB, "event_type": "Explode"}, "Event type: "),
    ],
)
def test_mistake_is_shown_as_it_is_typed(visits: Visits, form: dict[str, str], said: str) -> None:
    plan = visits().plan(**{"event_type": "Reboot", **form})

    assert said in plan
    assert hidden(plan) == {}


def test_start_that_comes_twice_is_done_once(emulator: Emulator, visits: Visits) -> None:
    visitor = visits()
    order = {**WEB, **hidden(visitor.plan(**WEB))}

    first, second = (visitor.post("/maintenances/start", **order) for _ in range(2))

    assert first.status_code == second.status_code == 204
    assert first.headers["HX-Trigger"] == second.headers["HX-Trigger"]
    assert len(maintenances(emulator)) == 1


def test_plan_that_was_not_shown_is_not_started(emulator: Emulator, visits: Visits) -> None:
    visitor = visits()
    shown = hidden(visitor.plan(**WEB))

    answer = visitor.post("/maintenances/start", **{**shown, **WEB, "scopes": "db"})

    assert answer.status_code == 200
    assert "The plan changed after you reviewed it." in answer.text
    assert hidden(answer.text)["digest"] != shown["digest"]
    assert maintenances(emulator) == []


def test_start_of_what_cannot_be_planned_shows_why(emulator: Emulator, visits: Visits) -> None:
    visitor = visits()
    shown = hidden(visitor.plan(**WEB))

    for wrong in ({"scopes": "nowhere"}, {"soak": "a while"}):
        answer = visitor.post("/maintenances/start", **{**shown, **WEB, **wrong})

        assert "There is no plan yet." in answer.text
    assert maintenances(emulator) == []


def test_viewer_sees_and_cannot_act(emulator: Emulator, visits: Visits) -> None:
    admin = visits()
    admin.post("/maintenances/start", **{**WEB, **hidden(admin.plan(**WEB))})
    (begun,) = maintenances(emulator)
    own = f"/maintenances/{begun['maintenance_id']}"
    viewer = visits(make_token(emulator, "vera", "viewer"))

    assert "web-0" in viewer.read(own)
    assert "<dialog" not in viewer.read(own) + viewer.plan(**WEB)
    for path in ("pause", "resume", "abort", "retry", "skip"):
        assert viewer.post(f"{own}/{path}").status_code == 403
    assert viewer.post("/maintenances/start", **WEB, digest="0").status_code == 403
    assert maintenances(emulator) == [begun]


def test_limited_token_reaches_its_scopes_only(emulator: Emulator, visits: Visits) -> None:
    admin = visits()
    for order in (
        {**WEB, "scopes": "db"},
        {"event_type": "Freeze", "by": "hosts", "hosts": "kvm-1"},
    ):
        admin.post("/maintenances/start", **{**order, **hidden(admin.plan(**order))})
    of_db, of_host = (each["maintenance_id"] for each in maintenances(emulator))
    limited = visits(make_token(emulator, "otto", "operator", "availability-set/web"))

    assert "db-0" not in limited.read("/maintenances") + limited.read(f"/maintenances/{of_host}")
    assert limited.client.get(f"/maintenances/{of_db}").status_code == 404
    assert limited.post(f"/maintenances/{of_host}/abort").status_code == 403
    assert limited.post(f"/maintenances/{of_db}/abort").status_code == 404
    assert "machine &#39;db&#39;" in limited.plan(**{**WEB, "scopes": "db"})
    assert "db-0" not in limited.post("/maintenances/names/virtual_machines").text
    by_host = {"event_type": "Reboot", "by": "hosts", "hosts": "kvm-1"}
    started = limited.post("/maintenances/start", **{**by_host, **hidden(limited.plan(**by_host))})
    assert started.status_code in {200, 403}
    assert len(maintenances(emulator)) == 2


def test_names_are_suggested_by_what_they_contain(visits: Visits) -> None:
    visitor = visits()

    found = visitor.post("/maintenances/names/scopes", find_scopes="WEB").text

    assert re.findall('value="([^"]+)"', found) == ["availability-set/web"]
    assert visitor.post("/maintenances/names/nothing").text.strip() == ""


def test_ended_maintenances_are_paged(emulator: Emulator, visits: Visits) -> None:
    visitor = visits()
    for _ in range(27):
        order = {**WEB, **hidden(visitor.plan(**WEB))}
        visitor.post("/maintenances/start", **order)
        newest = maintenances(emulator)[-1]["maintenance_id"]
        assert visitor.post(f"/maintenances/{newest}/abort").status_code == 204
    page = visitor.read("/maintenances")

    assert page.count('<tr id="maintenance-') == 25
    (older,) = re.findall(r'href="(/maintenances\?before=[^"]+)"', page)
    assert visitor.read(older).count('<tr id="maintenance-') == 2
