"""GET and HEAD of scheduled events: status, headers and bytes."""

import re
from collections.abc import Mapping

import pytest
from tests.http.metadata.conftest import POLL, WEB, Service, compose, read_all

from forewarn.protocol.errors import ERROR_ANSWERS, Refusal
from forewarn.protocol.versions import API_VERSIONS
from forewarn.protocol.vocabulary import EventType

PATH = "/metadata/scheduledevents"
EMPTY = b'{"DocumentIncarnation":0,"Events":[]}'
GUID = re.compile(r"[0-9a-f]{8}(-[0-9a-f]{4}){3}-[0-9a-f]{12}")


@pytest.mark.parametrize("version", [version.name for version in API_VERSIONS])
def test_first_poll_is_answered_at_once_with_the_empty_document(
    quiet_service: Service, version: str
) -> None:
    reply = quiet_service.request(f"{PATH}?api-version={version}")

    assert (reply.status, reply.body) == (200, EMPTY)


def test_answer_has_the_headers_of_the_real_service(quiet_service: Service) -> None:
    first, second = quiet_service.request(), quiet_service.request()

    assert first.headers["content-type"] == "application/json; charset=utf-8"
    assert first.headers["content-length"] == str(len(EMPTY))
    assert first.headers["server"] == "IMDS/150.870.65.1854"
    assert first.headers["etag"] == "0"
    assert first.headers["date"].endswith(" GMT")
    assert GUID.fullmatch(first.headers["x-ms-request-id"])
    assert first.headers["x-ms-request-id"] != second.headers["x-ms-request-id"]


@pytest.mark.parametrize(
    ("method", "target", "headers", "names"),
    [
        ("GET", POLL, {}, ["Content-Type", "Content-Length", "ETag"]),
        ("GET", POLL, {"If-None-Match": "0"}, ["ETag"]),
        ("GET", POLL, {"If-None-Match": "1", "Prefer": "wait=1"}, ["Preference-Applied"]),
        ("HEAD", POLL, {}, ["Content-Type", "Content-Length", "ETag"]),
        ("GET", "/metadata/nothing", {}, ["Content-Type", "Content-Length"]),
        ("PUT", POLL, {}, ["Allow"]),
        ("GET", POLL, {"X": "y" * 40_000}, ["Content-Length"]),
    ],
)
def test_header_names_have_the_case_of_the_real_service(
    quiet_service: Service, method: str, target: str, headers: Mapping[str, str], names: list[str]
) -> None:
    with quiet_service.connect() as connection:
        request = compose(method, target, {"Metadata": "true", "Connection": "close", **headers})
        connection.sendall(request)
        head = read_all(connection).partition(b"\r\n\r\n")[0].decode("ascii")

    written = [line.partition(":")[0] for line in head.splitlines()[1:]]
    assert {*names, "Date", "Server", "Connection"} <= set(written)
    assert [name for name in written if name.islower()] in ([], ["x-ms-request-id"])


def test_plain_poll_has_the_same_header_names(quiet_service: Service) -> None:
    with quiet_service.connect() as connection:
        connection.sendall(compose("GET", POLL, {"Metadata": "true"}))
        head = connection.recv(4096).partition(b"\r\n\r\n")[0].decode("ascii")

    written = {line.partition(":")[0] for line in head.splitlines()[1:]}
    assert written == {
        "Content-Type",
        "Content-Length",
        "ETag",
        "x-ms-request-id",
        "Date",
        "Server",
    }


def test_plain_poll_and_the_long_way_give_the_same_answer(service: Service) -> None:
    service.create()
    for headers in ({"Accept": "*/*"}, {"If-None-Match": "1"}):
        plain = service.request(headers=headers)
        long_way = service.request(headers=headers, metadata="TRUE")

        assert (plain.status, plain.body) == (long_way.status, long_way.body)
        assert plain.headers.keys() == long_way.headers.keys()
    assert len(service.polls) == 4


def test_event_has_the_observed_keys_in_the_observed_order(service: Service) -> None:
    identifier = service.create(description="Host é")

    assert service.request().body.decode("ascii") == (
        '{"DocumentIncarnation":1,"Events":[{"EventId":"' + identifier + '",'
        '"EventStatus":"Scheduled","EventType":"Reboot","ResourceType":"VirtualMachine",'
        '"Resources":["web-0"],"NotBefore":"Mon, 02 Mar 2026 12:15:00 GMT",'
        '"Description":"Host \\u00e9","EventSource":"Platform","DurationInSeconds":-1}]}'
    )


@pytest.mark.parametrize("version", API_VERSIONS, ids=lambda version: version.name)
def test_each_version_shows_exactly_its_own_fields(service: Service, version: object) -> None:
    service.create()
    known = next(each for each in API_VERSIONS if each is version)

    (event,) = service.request(f"{PATH}?api-version={known.name}").json["Events"]

    assert tuple(event) == known.fields


def test_types_newer_than_the_version_are_hidden(service: Service) -> None:
    service.create(EventType.TERMINATE, ("batch_0",))

    def poll(version: str) -> object:
        reply = service.request(f"{PATH}?api-version={version}", source="127.0.0.12")
        return [event["EventType"] for event in reply.json["Events"]]

    assert poll("2017-11-01") == []
    assert poll("2019-01-01") == ["Terminate"]


def test_preview_is_served_as_documented(service: Service) -> None:
    service.create()

    (event,) = service.request(f"{PATH}?api-version=2017-03-01").json["Events"]

    assert (event["NotBefore"], event["Resources"]) == ("2026-03-02T12:15:00Z", ["web-0"])


def test_started_event_has_an_empty_not_before_and_a_completed_one_is_gone(
    service: Service,
) -> None:
    identifier = service.create()
    service.start(identifier)
    started = service.request()
    service.complete(identifier)
    completed = service.request()

    assert started.json["Events"][0]["EventStatus"] == "Started"
    assert started.json["Events"][0]["NotBefore"] == ""
    assert started.json["DocumentIncarnation"] == 2
    assert completed.body == b'{"DocumentIncarnation":3,"Events":[]}'


def test_every_machine_of_a_scope_reads_the_same_bytes(service: Service) -> None:
    service.create()

    assert service.request().body == service.request(source="127.0.0.11").body
    assert service.request(source="127.0.0.12").body == EMPTY


REFUSED: Mapping[str, tuple[str, Refusal]] = {
    "no api-version": (PATH, Refusal.API_VERSION_MISSING),
    "empty": (f"{PATH}?api-version=", Refusal.API_VERSION_MISSING),
    "malformed": (f"{PATH}?api-version=2020-7-1", Refusal.API_VERSION_MISSING),
    "with a blank": (f"{PATH}?api-version=2020-07-01%20", Refusal.API_VERSION_MISSING),
    "twice": (f"{POLL}&api-version=2020-07-01", Refusal.API_VERSION_MISSING),
    "twice in another case": (f"{POLL}&Api-Version=2020-07-01", Refusal.API_VERSION_MISSING),
    "another twice": (f"{POLL}&format=json&format=json", Refusal.API_VERSION_MISSING),
    "latest": (f"{PATH}?api-version=latest", Refusal.API_VERSION_LATEST),
    "not served yet": (f"{PATH}?api-version=2024-07-09", Refusal.API_VERSION_UNKNOWN),
    "of other categories": (f"{PATH}?api-version=2021-02-01", Refusal.API_VERSION_UNKNOWN),
    "latest in the path": ("/metadata/latest/scheduledevents", Refusal.NOT_FOUND),
    "version in the path": ("/metadata/2017-03-01/scheduledevents", Refusal.NOT_FOUND),
    "attested document": ("/metadata/attested/document?api-version=x", Refusal.NOT_ATTESTED),
    "below": (f"{PATH}/x?api-version=2020-07-01", Refusal.NOT_FOUND),
    "elsewhere": ("/latest/meta-data/", Refusal.NOT_FOUND),
    "root": ("/", Refusal.NOT_FOUND),
    "prefix of nobody": (f"/vm/nobody{POLL}", Refusal.NOT_FOUND),
}


@pytest.mark.parametrize("case", REFUSED)
def test_refused_reading_has_the_body_of_the_table(quiet_service: Service, case: str) -> None:
    target, refusal = REFUSED[case]

    reply = quiet_service.request(target)

    assert (reply.status, reply.body) == (
        ERROR_ANSWERS[refusal].status,
        ERROR_ANSWERS[refusal].body,
    )
    assert reply.headers["content-type"] == "application/json; charset=utf-8"


@pytest.mark.parametrize(
    "target",
    [
        "/metadata/scheduledEvents?api-version=2020-07-01",
        "/METADATA/SCHEDULEDEVENTS?API-VERSION=2020-07-01",
        "/metadata/scheduledevents/?api-version=2020-07-01",
        "/metadata/scheduledevents?api%2Dversion=2020%2D07%2D01",
        "/metadata/scheduledevents?format=json&api-version=2020-07-01",
        "http://169.254.169.254/metadata/scheduledevents?api-version=2020-07-01",
    ],
)
def test_spelling_of_path_and_parameter_does_not_matter(
    quiet_service: Service, target: str
) -> None:
    assert quiet_service.request(target).body == EMPTY


@pytest.mark.parametrize("value", ["true", "True", "TRUE", " true ", "true\t"])
def test_metadata_header_counts_in_any_case(quiet_service: Service, value: str) -> None:
    assert quiet_service.request(metadata=value).status == 200
    assert quiet_service.request(metadata=None, headers={"METADATA": value}).status == 200


@pytest.mark.parametrize("value", [None, "", "false", "yes", "1"])
@pytest.mark.parametrize("target", [POLL, f"{PATH}?api-version=2017-03-01", PATH, "/"])
def test_without_the_metadata_header_nothing_is_read(
    quiet_service: Service, target: str, value: str | None
) -> None:
    reply = quiet_service.request(target, metadata=value)

    assert reply.status == 400
    assert reply.body == (b'{ "error": "Bad request: . Required metadata header not specified" }')


@pytest.mark.parametrize("method", ["PUT", "DELETE", "PATCH", "OPTIONS"])
def test_other_methods_are_not_allowed(quiet_service: Service, method: str) -> None:
    reply = quiet_service.request(method=method)

    assert (reply.status, reply.headers["allow"]) == (405, "GET, HEAD, POST")
    assert reply.body == ERROR_ANSWERS[Refusal.METHOD_NOT_ALLOWED].body


@pytest.mark.parametrize("given", ["1", '"1"', 'W/"1"', 'w/"1"', "*", '"7", W/"1"', "7,1", " 1 "])
def test_matching_if_none_match_is_answered_without_the_document(
    service: Service, given: str
) -> None:
    service.create()

    reply = service.request(headers={"If-None-Match": given})

    assert (reply.status, reply.body, reply.headers["etag"]) == (304, b"", "1")


@pytest.mark.parametrize("given", ["0", "null", '"11"', "", "undefined", 'W/"2"'])
def test_any_other_if_none_match_gets_the_document(service: Service, given: str) -> None:
    service.create()

    reply = service.request(headers={"If-None-Match": given})

    assert (reply.status, reply.json["DocumentIncarnation"]) == (200, 1)


def test_incarnation_zero_matches_too(quiet_service: Service) -> None:
    assert quiet_service.request(headers={"If-None-Match": "0"}).status == 304


def test_head_answers_as_get_without_a_body_and_does_not_enable(service: Service) -> None:
    head = service.request(method="HEAD")

    assert (head.status, head.body, head.headers["etag"]) == (200, b"", "0")
    assert head.headers["content-length"] == str(len(EMPTY))
    assert service.request(method="HEAD", headers={"If-None-Match": "0"}).status == 304
    assert service.polls == []


def test_each_answered_poll_enables_and_no_other(service: Service) -> None:
    service.request()
    service.request(headers={"If-None-Match": "0"})
    service.request("/metadata/scheduledevents/?api-version=2019-08-01", source="127.0.0.11")
    service.request(metadata=None)
    service.request(PATH)
    service.request(source="127.0.0.99")
    service.approve()

    assert service.polls == ["web-0", "web-0", "Web-1"]


@pytest.mark.parametrize(
    "headers",
    [
        {"Content-Length": "0"},
        {"Content-Type": "application/json", "TE": "trailers", "Accept": "text/html"},
        {"Content-Length": "4"},
        {"Connection": "Upgrade, HTTP2-Settings", "Upgrade": "h2c", "HTTP2-Settings": "AAEAAA"},
    ],
)
def test_needless_headers_and_bodies_of_a_poll_are_ignored(
    quiet_service: Service, headers: Mapping[str, str]
) -> None:
    body = b"null" if headers.get("Content-Length") == "4" else b""

    assert quiet_service.request(headers=headers, body=body).body == EMPTY


def test_polls_go_on_when_nothing_can_be_written(service: Service) -> None:
    identifier = service.create()
    service.make_read_only()

    refused = service.approve(identifier)
    assert (refused.status, refused.headers["retry-after"]) == (503, "1")
    assert service.request().json["DocumentIncarnation"] == 1


def test_machine_that_moves_reads_the_document_of_its_new_scope(service: Service) -> None:
    service.create()
    service.move("batch_0", WEB)

    assert service.request(source="127.0.0.12").json["DocumentIncarnation"] == 1


def test_more_parameters_than_anybody_needs_are_refused(quiet_service: Service) -> None:
    assert quiet_service.request(f"{POLL}{'&a=1' * 64}").status == 400


def test_conditions_in_two_headers_are_one_list(quiet_service: Service) -> None:
    assert quiet_service.request(headers={"If-None-Match": "7", "if-none-match": "0"}).status == 304
