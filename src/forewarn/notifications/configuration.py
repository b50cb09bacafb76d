"""The file of notifications: whom to tell what, how, and how often to try."""

import tomllib
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import Annotated, Final, Literal

from pydantic import (
    AfterValidator,
    Field,
    PositiveFloat,
    PositiveInt,
    ValidationError,
)
from pydantic_core import ErrorDetails

from forewarn.domain.errors import DomainError
from forewarn.domain.names import check_name, name_key
from forewarn.domain.notification import Phase, Retrying, Target
from forewarn.notifications.apprise import AppriseError, AppriseNotifier
from forewarn.notifications.outbox import Notifications
from forewarn.notifications.webhook import (
    Body,
    TemplateFailedError,
    WebhookNotifier,
    cloud_event_body,
    template_body,
)
from forewarn.operations.notifications import example_notification
from forewarn.operations.toml_lines import key_line, place, syntax_line, table_line
from forewarn.operations.toml_tables import (
    Address,
    Headers,
    SecretTable,
    Table,
    WrongKeyError,
    as_clause,
)
from forewarn.ports.notifier import Notifier
from forewarn.protocol.errors import ForewarnError
from forewarn.protocol.vocabulary import EventType

SOURCE: Final = "/forewarn"

_CLOUD_EVENT: Final = "application/cloudevents+json; charset=UTF-8"
_TEMPLATED: Final = "application/json"
_LONGEST_WAIT: Final = 86_400.0


class ConfigurationError(ForewarnError):
    """A file of notifications that cannot be used; the sentence begins with file and line."""


def _check_target_name(name: str) -> str:
    try:
        check_name(name, "notification target")
    except DomainError as error:
        raise ValueError(str(error)) from None
    return name


class _TargetTable(Table):
    name: Annotated[str, AfterValidator(_check_target_name)]
    scopes: tuple[str, ...] = ()
    event_types: tuple[EventType, ...] = ()
    phases: tuple[Phase, ...] = ()

    def target(self) -> Target:
        """Return what the target wants to know."""
        return Target(
            name=self.name,
            scopes=self.scopes,
            event_types=self.event_types,
            phases=self.phases,
        )


class WebhookTargetTable(_TargetTable, SecretTable):
    """A target that messages are posted to."""

    kind: Literal["webhook"]
    url: Address = Field(repr=False)
    headers: Headers = Field(default={}, repr=False)
    template: str | None = None
    timeout: float = Field(default=10, gt=0, le=60)


class AppriseTable(_TargetTable):
    """A target that apprise knows how to reach."""

    kind: Literal["apprise"]
    url: str = Field(repr=False)


class NotificationsFile(Table):
    """All of the file."""

    source: str = Field(default=SOURCE, min_length=1, pattern=r"^\S+$")
    first_retry: PositiveFloat = Field(default=5.0, le=_LONGEST_WAIT)
    longest_retry: PositiveFloat = Field(default=3600.0, le=_LONGEST_WAIT)
    attempts: PositiveInt = Retrying().attempts
    target: tuple[
        Annotated[WebhookTargetTable | AppriseTable, Field(discriminator="kind")], ...
    ] = ()


def read_notifications(path: Path | None) -> Notifications:
    """Return what the file at *path* says, or refuse with the line that is wrong."""
    if path is None:
        return Notifications()
    try:
        text = path.read_text(encoding="utf-8")
    except (OSError, UnicodeDecodeError) as error:
        raise ConfigurationError(f"{path} cannot be read: {error}.") from error
    try:
        content = NotificationsFile(**tomllib.loads(text))
    except tomllib.TOMLDecodeError as error:
        where = place(path, syntax_line(error))
        raise ConfigurationError(f"{where} is not TOML: {error}.") from error
    except ValidationError as error:
        raise _refusal(path, text, error.errors()[0]) from None
    return _build(path, text, content)


def _build(path: Path, text: str, content: NotificationsFile) -> Notifications:
    notifiers: dict[str, Notifier] = {}
    for number, table in enumerate(content.target):
        if name_key(table.name) in map(name_key, notifiers):
            raise _problem(path, text, number, "name", f"{table.name!r} is there already")
        try:
            notifiers[table.name] = _notifier(table, content.source, path.parent)
        except WrongKeyError as wrong:
            raise _problem(path, text, number, wrong.key, str(wrong)) from None
    return Notifications(
        targets=tuple(table.target() for table in content.target),
        notifiers=notifiers,
        retrying=Retrying(
            first=timedelta(seconds=content.first_retry),
            longest=timedelta(seconds=content.longest_retry),
            attempts=content.attempts,
        ),
    )


def _notifier(table: WebhookTargetTable | AppriseTable, source: str, folder: Path) -> Notifier:
    if isinstance(table, AppriseTable):
        try:
            return AppriseNotifier(table.url)
        except AppriseError as error:
            raise WrongKeyError("url", str(error)) from None
    content_type = _CLOUD_EVENT if table.template is None else _TEMPLATED
    given = {name.title(): value for name, value in table.headers.items()}
    return WebhookNotifier(
        url=table.url,
        body=_body(table, source),
        headers={"Content-Type": content_type, **given},
        secret=table.find_secret(folder),
        timeout=table.timeout,
    )


def _body(table: WebhookTargetTable, source: str) -> Body:
    if table.template is None:
        return cloud_event_body(source)
    try:
        body = template_body(table.template, source)
    except TemplateFailedError as error:
        raise WrongKeyError("template", f"the template is wrong: {error}") from None
    for phase in table.phases or Phase:
        _try(body, table.name, phase)
    return body


def _try(body: Body, target: str, phase: Phase) -> None:
    at = datetime(2026, 1, 5, 8, tzinfo=UTC)
    example = example_notification(
        target, notification_id="example", who="admin", now=at, at=at, phase=phase
    )
    try:
        body(example)
    except TemplateFailedError as error:
        problem = f"the template is wrong: {error}, in a message of phase {phase}"
        raise WrongKeyError("template", problem) from None


_PROBLEMS: Final = {
    "extra_forbidden": "there is no such key",
    "missing": "it is missing",
    "tuple_type": "write it as a list; targets are [[target]]",
    "union_tag_invalid": "write webhook or apprise",
    "union_tag_not_found": "write webhook or apprise",
}
"""What is wrong, where pydantic's own words would say little to who wrote the file."""


def _refusal(path: Path, text: str, error: ErrorDetails) -> ConfigurationError:
    problem = _PROBLEMS.get(error["type"], error["msg"].removeprefix("Value error, "))
    # ("target", 0, "webhook", "url"), or ("first_retry",)
    where = error["loc"]
    if where[:1] != ("target",) or len(where) < 2:
        key = str(where[0])
        return ConfigurationError(
            f"{place(path, key_line(text, key))}: {key}: {as_clause(problem)}."
        )
    number = int(where[1])
    named = [part for part in where[2:] if part not in {"webhook", "apprise"}]
    key = str(named[0]) if named else "kind" if error["type"].startswith("union_tag") else ""
    return _problem(path, text, number, key, problem)


def _problem(path: Path, text: str, number: int, key: str, problem: str) -> ConfigurationError:
    what = f"{key} of target {number + 1}" if key else f"target {number + 1}"
    line = table_line(text, "target", number, key)
    return ConfigurationError(f"{place(path, line)}: {what}: {as_clause(problem)}.")
