"""The tables of the file of executors: which keys they have, and which go together."""

from collections.abc import Mapping
from datetime import timedelta
from typing import Annotated, Final, TypeAlias

from pydantic import Field

from forewarn.domain.host_work import HostTaskKind, HostWorkRule
from forewarn.executors.orders import LONGEST, Selection
from forewarn.files.tables import (
    Address,
    Headers,
    SecretTable,
    Table,
    Words,
    WrongKeyError,
    duration,
)
from forewarn.protocol.vocabulary import EventType

Duration: TypeAlias = Annotated[timedelta, duration()]


class _Selective(Table):
    event_types: tuple[EventType, ...] = ()
    hosts: tuple[str, ...] = ()
    timeout: Duration = LONGEST

    @property
    def selection(self) -> Selection:
        """For which events and hosts it is meant."""
        return Selection(event_types=self.event_types, hosts=self.hosts)


class CommandTable(_Selective):
    """A program to run."""

    run: Words


class WebhookTable(_Selective, SecretTable):
    """A target to post to."""

    url: Address = Field(repr=False)
    headers: Headers = Field(default={}, repr=False)
    request_timeout: float = Field(default=10, gt=0, le=60)


_USUAL: Final = HostWorkRule()
_VERIFY_TIMEOUT: Final = timedelta(minutes=1)

COMMANDS: Final = {
    HostTaskKind.WORK: "run",
    HostTaskKind.VERIFY: "verify",
    HostTaskKind.RETURN: "return",
}
"""Which key has the command for a task."""

_WEBHOOKS: Final = {
    HostTaskKind.WORK: "url",
    HostTaskKind.VERIFY: "verify_url",
    HostTaskKind.RETURN: "return_url",
}
_OF_WEBHOOKS: Final = ("headers", "secret", "secret_file", "request_timeout")
_OF_VERIFYING: Final = ("verify_timeout", "verify_within", "verify_every")


class HostWorkTable(SecretTable):
    """Work on some hosts, by commands or by webhooks."""

    hosts: tuple[str, ...] = ()
    labels: Mapping[str, str] = {}
    run: Words | None = None
    verify: Words | None = None
    return_: Words | None = Field(default=None, alias="return")
    url: Address | None = Field(default=None, repr=False)
    verify_url: Address | None = Field(default=None, repr=False)
    return_url: Address | None = Field(default=None, repr=False)
    headers: Headers = Field(default={}, repr=False)
    request_timeout: float = Field(default=10, gt=0, le=60)
    timeout: Duration = LONGEST
    verify_timeout: Duration = _VERIFY_TIMEOUT
    verify_within: Duration = _USUAL.verify_within
    verify_every: Duration = _USUAL.verify_every

    @property
    def commands(self) -> Mapping[HostTaskKind, Words]:
        """What to run for each task."""
        words = (self.run, self.verify, self.return_)
        return {kind: each for kind, each in zip(HostTaskKind, words, strict=True) if each}

    @property
    def urls(self) -> Mapping[HostTaskKind, str]:
        """Where to post for each task."""
        urls = (self.url, self.verify_url, self.return_url)
        return {kind: each for kind, each in zip(HostTaskKind, urls, strict=True) if each}

    @property
    def rule(self) -> HostWorkRule:
        """Which hosts it is for, or refuse keys that do not go together."""
        self._check_keys()
        return HostWorkRule(
            hosts=self.hosts,
            labels=self.labels,
            has_verify=HostTaskKind.VERIFY in {*self.commands, *self.urls},
            verify_within=self.verify_within,
            verify_every=self.verify_every,
            has_return=HostTaskKind.RETURN in {*self.commands, *self.urls},
        )

    def timeout_of(self, kind: HostTaskKind) -> timedelta:
        """Return how long one task may take."""
        if kind is HostTaskKind.VERIFY:
            return min(self.verify_timeout, self.verify_within)
        return self.timeout

    def _check_keys(self) -> None:
        if (self.run is None) == (self.url is None):
            raise WrongKeyError("", "write either run or url")
        has, misfits = (
            ("run", (*_WEBHOOKS.values(), *_OF_WEBHOOKS))
            if self.url is None
            else ("url", COMMANDS.values())
        )
        given = {"return" if name == "return_" else name for name in self.model_fields_set}
        for key in misfits:
            if key in given:
                raise WrongKeyError(key, f"it cannot be used together with {has}")
        if self.verify is None and self.verify_url is None:
            for key in _OF_VERIFYING:
                if key in given:
                    raise WrongKeyError(key, "it needs verify or verify_url")
        if self.verify_every > self.verify_within:
            raise WrongKeyError("verify_every", "it is longer than verify_within")


class ExecutorFile(Table):
    """All of the file."""

    command: tuple[CommandTable, ...] = ()
    webhook: tuple[WebhookTable, ...] = ()
    host_work: tuple[HostWorkTable, ...] = ()
