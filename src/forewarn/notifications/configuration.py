"""The file of notifications: whom to tell what, how, and how often to try."""

from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import Annotated, ClassVar, Final, Literal, TypeAlias

from pydantic import Field, PositiveFloat, PositiveInt

from forewarn.domain.notification import Phase, Retrying, Target
from forewarn.files.tables import (
    Address,
    Headers,
    NamedTable,
    SecretTable,
    Table,
    WrongKeyError,
    read_tables,
)
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
from forewarn.outbound.client import Outbound, OutboundRequest
from forewarn.ports.notifier import Notifier
from forewarn.protocol.vocabulary import EventType

SOURCE: Final = "/forewarn"

_CLOUD_EVENT: Final = "application/cloudevents+json; charset=UTF-8"
_TEMPLATED: Final = "application/json"
_LONGEST_WAIT: Final = 86_400.0


class _TargetTable(NamedTable):
    noun: ClassVar = "notification target"
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

    def request(self, folder: Path) -> OutboundRequest:
        """Return what every message to this address has in common."""
        content_type = _CLOUD_EVENT if self.template is None else _TEMPLATED
        given = {name.title(): value for name, value in self.headers.items()}
        return OutboundRequest(
            method="POST",
            url=self.url,
            timeout=self.timeout,
            headers={"Content-Type": content_type, **given},
            secret=self.find_secret(folder),
        )


class AppriseTable(_TargetTable):
    """A target that apprise knows how to reach."""

    kind: Literal["apprise"]
    url: str = Field(repr=False)


AnyTarget: TypeAlias = WebhookTargetTable | AppriseTable


class NotificationsFile(Table):
    """All of the file."""

    source: str = Field(default=SOURCE, min_length=1, pattern=r"^\S+$")
    first_retry: PositiveFloat = Field(default=5.0, le=_LONGEST_WAIT)
    longest_retry: PositiveFloat = Field(default=3600.0, le=_LONGEST_WAIT)
    attempts: PositiveInt = Retrying().attempts
    target: tuple[Annotated[AnyTarget, Field(discriminator="kind")], ...] = ()


def read_notifications(path: Path | None, outbound: Outbound) -> Notifications:
    """Return what the file at *path* says, or refuse all mistakes."""
    if path is None:
        return Notifications()
    file = read_tables(path, NotificationsFile)
    content = file.content

    def make(table: AnyTarget) -> tuple[str, Notifier]:
        if isinstance(table, AppriseTable):
            return table.name, _apprise(table)
        request, body = table.request(file.folder), _body(table, content.source)
        return table.name, WebhookNotifier(outbound, request, body)

    return Notifications(
        targets=tuple(table.target() for table in content.target),
        notifiers=dict(file.build("target", content.target, make)),
        retrying=Retrying(
            first=timedelta(seconds=content.first_retry),
            longest=timedelta(seconds=content.longest_retry),
            attempts=content.attempts,
        ),
    )


def _apprise(table: AppriseTable) -> Notifier:
    try:
        return AppriseNotifier(table.url)
    except AppriseError as error:
        raise WrongKeyError("url", str(error)) from None


def _body(table: WebhookTargetTable, source: str) -> Body:
    if table.template is None:
        return cloud_event_body(source)
    try:
        body = template_body(table.template, source)
    except TemplateFailedError as error:
        raise WrongKeyError("template", f"invalid template: {error}") from None
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
        problem = f"invalid template: {error}, in a message of phase {phase}"
        raise WrongKeyError("template", problem) from None
