"""What a client says to a metadata server, whoever carries the messages."""

import codecs
import json
from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass, replace
from datetime import datetime
from functools import partial
from typing import Any, Final
from urllib.parse import quote

from forewarn.client._endpoints import Endpoint, parse_endpoint
from forewarn.client._errors import RefusedError, UnavailableError
from forewarn.client._messages import Conversation, Request, Response
from forewarn.client._retrying import Conduct, decode_json, exchange, persist
from forewarn.protocol.document import Document, Event, decode_document
from forewarn.protocol.errors import MalformedDocumentError
from forewarn.protocol.identity import Identity
from forewarn.protocol.start_requests import encode_start_requests
from forewarn.protocol.vocabulary import METADATA_HEADER, EventId, event_id

_INSTANCE: Final = "/metadata/instance"
_EXTENSION: Final = "/metadata/forewarn/v1"
_INSTANCE_VERSION: Final = "2021-02-01"
_BLANK: Final = codecs.BOM_UTF8 + b" \t\r\n"


@dataclass(frozen=True, slots=True, kw_only=True)
class Poll:
    """What came of one poll; `document` is None when it is the one that was known already."""

    document: Document | None
    etag: str | None
    was_parked: bool


class Conversations:
    """What a client says to a metadata server, which is looked for when it is first needed."""

    def __init__(
        self,
        endpoint: str | None,
        conduct: Conduct,
        find_endpoint: Callable[[], Conversation[Endpoint]] | None = None,
    ) -> None:
        self.conduct = conduct
        self._endpoint = None if endpoint is None else parse_endpoint(endpoint)
        self._find_endpoint = find_endpoint

    @property
    def endpoint(self) -> str | None:
        """Where the server is, None as long as it was not looked for."""
        return None if self._endpoint is None else str(self._endpoint)

    def document(self) -> Conversation[Document]:
        """Read the document."""
        return persist(self._read_document, self.conduct)

    def approve(self, events: Iterable[Event | str]) -> Conversation[None]:
        """Request the start of *events*, all in one."""
        event_ids = tuple(dict.fromkeys(map(_event_id_of, events)))
        if event_ids:
            body = encode_start_requests(event_ids)
            yield from persist(partial(self._post, self._scheduled_events(), body), self.conduct)

    def postpone(self, event: Event | str, not_before: datetime) -> Conversation[None]:
        """Ask for a later *not_before*; RefusedError if that is not offered or not granted."""
        return persist(
            partial(self._request_postponement, _event_id_of(event), not_before), self.conduct
        )

    def whoami(self, host_name: str) -> Conversation[Identity]:
        """Find out which virtual machine this is; *host_name* is what it calls itself."""
        return persist(partial(self._find_identity, host_name), self.conduct)

    def poll(self, headers: Mapping[str, str], wait: float = 0) -> Conversation[Poll]:
        """Ask for the document once, and let the server *wait* for so many seconds."""
        endpoint, answer = yield from self._get_document(headers, wait)
        is_known = answer.status == 304 and "If-None-Match" in headers
        return Poll(
            document=None if is_known else _decode(endpoint, answer),
            etag=answer.headers.get("etag"),
            was_parked="wait" in answer.headers.get("preference-applied", "").lower(),
        )

    def describe(self, identifier: EventId) -> Conversation[Mapping[str, Any] | None]:
        """Return what has become of an event, or None if this server does not know the question."""
        return self._ask_extension(f"/events/{_quote(identifier)}")

    def _locate(self) -> Conversation[Endpoint]:
        if self._endpoint is None:
            if self._find_endpoint is None:
                # Who was told where the server is does without all this.
                from forewarn.client._discovery import Search

                self._find_endpoint = Search(self.conduct).find_endpoint
            self._endpoint = yield from self._find_endpoint()
        return self._endpoint

    def _scheduled_events(self) -> str:
        return f"/metadata/scheduledevents?api-version={quote(self.conduct.api_version, safe='')}"

    def _read_document(self) -> Conversation[Document]:
        endpoint, answer = yield from self._get_document({})
        return _decode(endpoint, answer)

    def _get_document(
        self, headers: Mapping[str, str], wait: float = 0
    ) -> Conversation[tuple[Endpoint, Response]]:
        request = yield from self._get(self._scheduled_events(), headers)
        return request.endpoint, (yield from exchange(replace(request, wait=wait)))

    def _request_postponement(
        self, identifier: EventId, not_before: datetime
    ) -> Conversation[None]:
        path = f"{_EXTENSION}/events/{_quote(identifier)}/postpone"
        body = json.dumps({"not_before": not_before.isoformat()}).encode()
        try:
            yield from self._post(f"{path}?api-version={_INSTANCE_VERSION}", body)
        except UnavailableError as error:
            if error.status != 404:
                raise
            sentence = "it does not know the event, or does not support postponing"
            raise RefusedError(error.endpoint, 404, sentence) from error

    def _find_identity(self, host_name: str) -> Conversation[Identity]:
        told = yield from self._ask_extension("/whoami")
        if told is None:
            instance = yield from self._read_object(_INSTANCE)
            told = _translate_compute(instance.get("compute"))
        name = _read_text(told.get("name"))
        if name is None:
            endpoint = yield from self._locate()
            raise UnavailableError(str(endpoint), "it does not tell this machine's name")
        return Identity(
            name=name,
            vm_id=_read_text(told.get("vm_id")),
            host_name=host_name,
            update_domain=_read_number(told.get("update_domain")),
            fault_domain=_read_number(told.get("fault_domain")),
        )

    def _ask_extension(self, path: str) -> Conversation[Mapping[str, Any] | None]:
        try:
            return (yield from self._read_object(f"{_EXTENSION}{path}"))
        except RefusedError:
            return None  # Azure refuses some paths that it does not have with 400
        except UnavailableError as error:
            if error.status == 404:
                return None
            raise

    def _read_object(self, path: str) -> Conversation[Mapping[str, Any]]:
        target = f"{path}?api-version={_INSTANCE_VERSION}"
        request = yield from self._get(target)
        answer = yield from exchange(request)
        content = decode_json(answer.body)
        if not isinstance(content, dict):
            raise UnavailableError(str(request.endpoint), "its answer is not a JSON object")
        return content

    def _get(self, path: str, headers: Mapping[str, str] | None = None) -> Conversation[Request]:
        return Request(
            endpoint=(yield from self._locate()),
            path=path,
            timeout=self.conduct.timeout,
            headers={METADATA_HEADER: "true", **(headers or {})},
        )

    def _post(self, path: str, body: bytes) -> Conversation[None]:
        """Send *body*; a page of HTML is a proxy's or a portal's, and grants nothing."""
        headers = {"Content-Type": "application/json"}
        request = yield from self._get(path, headers)
        answer = yield from exchange(replace(request, method="POST", body=body))
        is_called_html = "html" in answer.headers.get("content-type", "").lower()
        if answer.body.lstrip(_BLANK).startswith(b"<") or (answer.body and is_called_html):
            trouble = f"it answered {answer.status} with an HTML page"
            raise UnavailableError(str(request.endpoint), trouble)


def _decode(endpoint: Endpoint, answer: Response) -> Document:
    try:
        document = decode_document(answer.body)
    except MalformedDocumentError as error:
        trouble = f"its answer is not a valid document: {str(error).rstrip('.')}"
        raise UnavailableError(str(endpoint), trouble) from error
    if document is None:
        raise UnavailableError(str(endpoint), f"it answered {answer.status} with an empty body")
    return document


def _event_id_of(event: Event | str) -> EventId:
    return event.event_id if isinstance(event, Event) else event_id(event)


def _quote(identifier: EventId) -> str:
    # What comes as JSON may have half of a character in it, which no address can.
    return quote(identifier, safe="", errors="replace")


def _translate_compute(compute: object) -> Mapping[str, object]:
    if not isinstance(compute, dict):
        return {}
    return {
        "name": compute.get("name"),
        "vm_id": compute.get("vmId"),
        "update_domain": compute.get("platformUpdateDomain"),
        "fault_domain": compute.get("platformFaultDomain"),
    }


def _read_text(value: object) -> str | None:
    return value if isinstance(value, str) and value else None


def _read_number(value: object) -> int | None:
    # Every scalar of instance metadata is a string; what is not known is the empty string.
    text = str(value)
    return int(text) if text.isascii() and text.isdecimal() and len(text) < 10 else None
