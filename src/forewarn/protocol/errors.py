"""What can go wrong on the wire: the exceptions of decoding, and the bodies Azure answers with.

ForewarnError                     the root of every error forewarn raises on purpose
└ ProtocolError                   what was read is not the protocol
  ├ MalformedDocumentError        an answer to GET that is no scheduled-events document
  └ MalformedStartRequestsError   a POST body that is no list of StartRequests
"""

from collections.abc import Mapping
from dataclasses import dataclass
from enum import Enum
from typing import ClassVar, Final

from forewarn.protocol.versions import API_VERSIONS


class ForewarnError(Exception):
    """The root of every error forewarn raises on purpose."""

    template: ClassVar[str]

    def __post_init__(self) -> None:
        """Have an error with a *template* be said with its fields filled in."""
        fields = vars(self).items()
        several = {name: ", ".join(map(str, it)) for name, it in fields if isinstance(it, tuple)}
        super().__init__(self.template.format_map({**vars(self), **several}))


class ProtocolError(ForewarnError):
    """What was read is not the protocol."""


class MalformedDocumentError(ProtocolError):
    """An answer to GET that is no scheduled-events document."""


class MalformedStartRequestsError(ProtocolError):
    """A POST body that is no list of StartRequests."""


class Refusal(Enum):
    """Why the metadata endpoint refuses a request."""

    METADATA_HEADER_MISSING = "metadata header missing"
    FORWARDED = "request forwarded by a proxy"
    ORIGIN = "request from a web page"
    PATH_FORWARDED = "/vm/NAME in the path of a forwarded request"
    PATH_UNTRUSTED = "/vm/NAME in the path without --trust-path"
    API_VERSION_MISSING = "api-version missing, malformed or given twice"
    API_VERSION_LATEST = "api-version latest"
    API_VERSION_UNKNOWN = "api-version unknown"
    BODY_MALFORMED = "POST body malformed"
    BODY_TOO_LARGE = "POST body too large"
    EVENT_UNKNOWN = "EventId never existed in this scope"
    NOT_FOUND = "unknown path or virtual machine"
    IDENTITY_UNKNOWN = "no managed identity"
    NOT_ATTESTED = "no attested data"
    METHOD_NOT_ALLOWED = "method not allowed"
    SIGNATURE_INVALID = "invalid proxy signature"
    TOO_MANY_WAITING = "too many waiting polls from one virtual machine"
    UNAVAILABLE = "the database cannot be written"
    FAILED = "internal error; details are in the log"


@dataclass(frozen=True, slots=True)
class ErrorAnswer:
    """A status and the body that goes with it."""

    status: int
    body: bytes


def error_body(sentence: str) -> bytes:
    """Return the body of an error that says *sentence*."""
    # The captured bodies have a blank inside each brace: compatibility.md#error-bodies.
    return f'{{ "error": "{sentence}" }}'.encode("ascii")


def _newest_versions() -> bytes:
    names = ",".join(f'"{version.name}"' for version in API_VERSIONS[:-4:-1])
    return (
        '{"error":"Bad request. api-version is invalid or was not specified in the request. '
        f'For more information refer to aka.ms/azureimds","newest-versions":[{names}]}}'
    ).encode("ascii")


ERROR_ANSWERS: Final[Mapping[Refusal, ErrorAnswer]] = {
    Refusal.METADATA_HEADER_MISSING: ErrorAnswer(
        400, error_body("Bad request: . Required metadata header not specified")
    ),
    Refusal.FORWARDED: ErrorAnswer(
        400, error_body("Bad request. X-Forwarded-For header is not allowed")
    ),
    Refusal.ORIGIN: ErrorAnswer(400, error_body("Bad request. Origin header is not allowed")),
    Refusal.PATH_FORWARDED: ErrorAnswer(
        400, error_body("Bad request. A forwarded request cannot name its virtual machine")
    ),
    Refusal.PATH_UNTRUSTED: ErrorAnswer(
        404, error_body("Not found. The path prefix /vm/NAME needs forewarn serve --trust-path")
    ),
    Refusal.API_VERSION_MISSING: ErrorAnswer(400, _newest_versions()),
    Refusal.API_VERSION_LATEST: ErrorAnswer(
        400, error_body("Bad request. The api-version latest is no longer supported")
    ),
    Refusal.API_VERSION_UNKNOWN: ErrorAnswer(
        404, error_body("Not found. Invalid version requested")
    ),
    Refusal.BODY_MALFORMED: ErrorAnswer(
        400, error_body("Bad request. The body is not a list of StartRequests")
    ),
    Refusal.BODY_TOO_LARGE: ErrorAnswer(413, error_body("Request body too large")),
    Refusal.EVENT_UNKNOWN: ErrorAnswer(400, error_body("Bad request. EventId is unknown")),
    Refusal.NOT_FOUND: ErrorAnswer(404, error_body("Not found")),
    # A 404 makes Azure's SDKs retry for 20 seconds: compatibility.md#other-categories.
    Refusal.IDENTITY_UNKNOWN: ErrorAnswer(
        400, b'{"error":"invalid_request","error_description":"Identity not found"}'
    ),
    Refusal.NOT_ATTESTED: ErrorAnswer(
        404, error_body("Not found. This server signs no attested data")
    ),
    Refusal.METHOD_NOT_ALLOWED: ErrorAnswer(405, error_body("Method not allowed")),
    Refusal.SIGNATURE_INVALID: ErrorAnswer(403, error_body("Forbidden. Invalid signature")),
    Refusal.TOO_MANY_WAITING: ErrorAnswer(429, error_body("Too many requests")),
    Refusal.UNAVAILABLE: ErrorAnswer(503, error_body("Service unavailable. Try again")),
    Refusal.FAILED: ErrorAnswer(500, error_body("Internal server error. Try again")),
}
"""Every refusal with its answer: compatibility.md#error-bodies."""
