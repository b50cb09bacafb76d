"""Whatever the OpenAPI document allows, and what it does not, is answered as the document says.

schemathesis makes up the requests, the same ones each time. Whatever is refused changes nothing but
the audit, by one line.
"""

import sqlite3
from contextlib import closing
from pathlib import Path
from typing import Any, Final, TypeAlias

import httpx2
import pytest
import schemathesis
from fastapi import FastAPI
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st
from schemathesis import Case, GenerationMode, Response
from schemathesis.config import SchemathesisConfig
from schemathesis.specs.openapi.checks import positive_data_acceptance

from forewarn.control.app import api_routes
from forewarn.control.arm import ARM_PATH
from forewarn.control.authentication import API_PREFIX

Document: TypeAlias = Any  # schemathesis has no public name for it
Rows: TypeAlias = dict[str, list[tuple[object, ...]]]

TOKEN: Final = {"Authorization": "Bearer open-sesame"}
UNENDING: Final = "/api/v1/events/watch"
"""It answers for as long as somebody listens, so it is left out here; test_watching.py has it."""
EXCLUDED: Final[list[Any]] = [positive_data_acceptance]
"""What a fleet, a name or a moment may be is more than a schema says; the rest is refused, 422."""
OPERATIONS: Final = [
    *((API_PREFIX + route.path, verb) for route in api_routes() for verb in route.methods or ()),
    ("/healthz", "GET"),
    ("/readyz", "GET"),
    ("/readyz/write", "GET"),
    ("/metrics", "GET"),
    (ARM_PATH, "POST"),
]
DOCUMENT: Final = pytest.StashKey[Document]()
SEEDED: Final = settings(
    max_examples=50,
    derandomize=True,
    deadline=None,
    database=None,
    suppress_health_check=list(HealthCheck),
)


class Api:
    """A server that is watched while requests are made."""

    def __init__(self, database: Path) -> None:
        self._database = database

    def call(self, case: Case[Any]) -> Response:
        before = self._rows()
        response = case.call(headers=TOKEN)
        if response.status_code >= 400:
            self._assert_refused(before, self._rows())
        return response

    def _assert_refused(self, before: Rows, after: Rows) -> None:
        audited = after.pop("audit")
        known = before.pop("audit")
        assert after == before, "a refused request has changed something"
        assert audited[: len(known)] == known
        assert len(audited) <= len(known) + 1

    def _rows(self) -> Rows:
        with closing(sqlite3.connect(self._database)) as connection:
            names = connection.execute("SELECT name FROM sqlite_schema WHERE type = 'table'")
            return {
                name: connection.execute(f"SELECT * FROM {name}").fetchall()  # noqa: S608
                for (name,) in names.fetchall()
            }


@pytest.fixture
def server(api: httpx2.Client, tmp_path: Path) -> Api:
    """A server with a fleet, and an event to do something about."""
    order = {"event_type": "Reboot", "resources": ["web-0"]}
    assert api.post("events", json=order).status_code == 201
    return Api(tmp_path / "forewarn.db")


@pytest.fixture
def document(app: FastAPI, pytestconfig: pytest.Config) -> Document:
    """What the server says of itself; read once, because that takes longer than the requests."""
    known = pytestconfig.stash.get(DOCUMENT, None)
    if known is None:
        config = SchemathesisConfig()
        # Ours is always there; test_authentication.py is about those without.
        config.projects.default.generation.update(with_security_parameters=False)
        known = schemathesis.openapi.from_asgi("/api/openapi.json", app, config=config)
        pytestconfig.stash[DOCUMENT] = known
    known.app = app
    return known


@pytest.mark.parametrize(("path", "verb"), [each for each in OPERATIONS if each[0] != UNENDING])
def test_operation_answers_as_the_document_says(
    server: Api, document: Document, path: str, verb: str
) -> None:
    operation = document[path][verb]

    @SEEDED
    @given(st.one_of(*(operation.as_strategy(generation_mode=mode) for mode in GenerationMode)))
    def check(case: Case[Any]) -> None:
        case.validate_response(server.call(case), excluded_checks=EXCLUDED)

    check()


def test_every_operation_is_tried(app: FastAPI) -> None:
    declared = {
        (path, verb.upper()) for path, verbs in app.openapi()["paths"].items() for verb in verbs
    }

    assert declared == set(OPERATIONS)


def test_what_was_created_is_answered_about_as_the_document_says(
    server: Api, document: Document
) -> None:
    machine: Any = document.exclude(path=UNENDING).as_state_machine()

    class Links(machine):  # type: ignore[misc]
        """Requests that take what they are about from the answers before."""

        def call(self, case: Case[Any], **_: Any) -> Response:
            return server.call(case)

        def validate_response(self, response: Response, case: Case[Any], **_: Any) -> None:
            case.validate_response(response, excluded_checks=EXCLUDED)

    Links.run(settings=settings(SEEDED, stateful_step_count=8))
