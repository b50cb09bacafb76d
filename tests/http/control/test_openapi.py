"""Whatever the OpenAPI document allows, and what it does not, is answered as the document says.

schemathesis makes up the requests, the same ones each time. Whatever is refused changes nothing but
the audit, by one line.
"""

import re
import sqlite3
from collections import Counter
from collections.abc import Iterator, Mapping
from contextlib import closing
from itertools import chain
from pathlib import Path
from typing import Any, Final, TypeAlias

import pytest
import schemathesis
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st
from schemathesis import Case, GenerationMode, Response
from schemathesis.config import SchemathesisConfig
from schemathesis.specs.openapi.checks import positive_data_acceptance
from starlette.testclient import TestClient
from tests.http.conftest import FLEET, HandClock, Wall, make_services

from forewarn.control.app import api_routes, create_app
from forewarn.control.arm import ARM_PATH
from forewarn.control.authentication import API_PREFIX
from forewarn.desk.ledger_watch import LedgerWatch
from forewarn.storage.sqlite import open_sqlite

Document: TypeAlias = Any  # schemathesis has no public name for it
Rows: TypeAlias = dict[str, list[tuple[object, ...]]]

TOKEN: Final = {"Authorization": "Bearer open-sesame"}
UNENDING: Final = "/api/v1/events/watch"
"""It answers for as long as somebody listens, so it is left out here; test_watching.py has it."""
EXCLUDED: Final[list[Any]] = [positive_data_acceptance]
"""What a fleet, a name or a moment may be is more than a schema says; the rest is refused, 422."""
OPERATIONS: Final = [
    *(
        (API_PREFIX + route.path_format, verb)
        for route in api_routes()
        for verb in route.methods or ()
    ),
    ("/healthz", "GET"),
    ("/readyz", "GET"),
    ("/readyz/write", "GET"),
    ("/metrics", "GET"),
    (ARM_PATH, "POST"),
]
DOCUMENT: Final = pytest.StashKey[Document]()
# `make soak` tries ten times as many.
SEEDED: Final = settings(
    max_examples=settings().max_examples // 10,
    derandomize=settings().derandomize,
    deadline=None,
    database=None,
    suppress_health_check=list(HealthCheck),
)


class Api:
    """A server with a fleet and an event to do something about, watched while requests are made."""

    def __init__(self, database: Path, template: bytes) -> None:
        database.write_bytes(template)
        self._database = database
        self._store = open_sqlite(database, is_durable=False)
        ledger_watch = LedgerWatch(self._store)
        self.app = create_app(
            make_services(self._store, HandClock(), Wall(), wakeups=[], ledger_watch=ledger_watch)
        )
        client = TestClient(self.app, base_url="http://control/api/v1/", headers=TOKEN)
        order = {"event_type": "Reboot", "resources": ["web-0"]}
        assert client.post("fleet", json={"fleet": FLEET}).status_code == 200
        assert client.post("events", json=order).status_code == 201

    def close(self) -> None:
        self._store.close()

    def call(self, case: Case[Any]) -> Response:
        # An operation keeps the server it was first made for, and schemathesis keeps operations.
        case.operation.app = self.app
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
def server(tmp_path: Path, new_database: bytes) -> Iterator[Api]:
    made = Api(tmp_path / "server.db", new_database)
    yield made
    made.close()


@pytest.fixture
def document(server: Api, pytestconfig: pytest.Config) -> Document:
    """What the server says of itself; read once, because that takes longer than the requests."""
    known = pytestconfig.stash.get(DOCUMENT, None)
    if known is None:
        config = SchemathesisConfig()
        # Ours is always there; test_authentication.py is about those without.
        config.projects.default.generation.update(with_security_parameters=False)
        # Of a text that is too long, the body may be too large as well.
        rejection = config.projects.default.checks.negative_data_rejection
        rejection.expected_statuses = [*rejection.expected_statuses, "413"]
        known = schemathesis.openapi.from_asgi("/api/openapi.json", server.app, config=config)
        pytestconfig.stash[DOCUMENT] = known
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


def test_every_operation_is_tried(openapi: dict[str, Any]) -> None:
    declared = {(path, verb.upper()) for path, verbs in openapi["paths"].items() for verb in verbs}

    assert declared == set(OPERATIONS)


def test_what_was_created_is_answered_about_as_the_document_says(
    document: Document, tmp_path: Path, new_database: bytes
) -> None:
    machine: Any = document.exclude(path=UNENDING).as_state_machine()

    class Links(machine):  # type: ignore[misc]
        """Requests that take what they are about from the answers before."""

        def setup(self) -> None:
            # The same requests have to get the same answers, so that each walk begins anew.
            self.server = Api(tmp_path / "walk.db", new_database)

        def teardown(self) -> None:
            self.server.close()
            for file in tmp_path.glob("walk.db*"):
                file.unlink()

        def call(self, case: Case[Any], **_: Any) -> Response:
            return self.server.call(case)

        def validate_response(self, response: Response, case: Case[Any], **_: Any) -> None:
            case.validate_response(response, excluded_checks=EXCLUDED)

    walks = settings().max_examples // 8
    Links.run(settings=settings(SEEDED, max_examples=walks, stateful_step_count=8))


def test_every_reference_leads_somewhere(openapi: dict[str, Any]) -> None:
    assert [each for each in _references(openapi) if not _resolves(openapi, each)] == []


def test_every_operation_is_called_by_a_verb_and_its_noun(openapi: dict[str, Any]) -> None:
    called = [
        operation["operationId"]
        for operations in openapi["paths"].values()
        for operation in operations.values()
    ]

    assert [each for each in called if not re.fullmatch(r"[a-z]+(_[a-z]+)+", each)] == []
    assert [each for each, times in Counter(called).items() if times > 1] == []
    assert {"apply_fleet", "cancel_event", "pause_maintenance", "retry_notification"} <= set(called)


def _references(node: object) -> Iterator[str]:
    match node:
        case {"$ref": str(reference)}:
            yield reference
        case dict():
            yield from chain.from_iterable(map(_references, node.values()))
        case list():
            yield from chain.from_iterable(map(_references, node))
        case _:
            pass


def _resolves(document: Mapping[str, Any], reference: str) -> bool:
    node: Any = document
    for part in reference.removeprefix("#/").split("/"):
        node = None if node is None else node.get(part)
    return node is not None
