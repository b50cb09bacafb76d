"""A libvirt in memory, for what no driver does on demand: to refuse, to be away, to forget."""

from collections.abc import Callable
from contextlib import suppress
from dataclasses import dataclass, field
from typing import Any

import libvirt

from forewarn.executors.libvirt.api import UnreachableError

RUNNING, PAUSED, OFF = (
    libvirt.VIR_DOMAIN_RUNNING,
    libvirt.VIR_DOMAIN_PAUSED,
    libvirt.VIR_DOMAIN_SHUTOFF,
)


def refusal(code: int, message: str = "no") -> Exception:
    """Return an error of libvirt."""
    error: Exception = libvirt.libvirtError(message)
    error.err = (code, 0, message, 0, "", "", "", 0, 0)  # type: ignore[attr-defined]
    return error


@dataclass(eq=False)
class FakeDomain:
    """A guest. *refusing* has what a call is refused with, as often as it is there.

    One that *obeys* is suspended although libvirt says that it is not. One that *relapses* is
    paused again so many times as soon as it is resumed, as if its disk were full.
    """

    host: "FakeHost"
    called: str = "web-0"
    power: int = RUNNING
    why: int = 0
    mark: str = ""
    autostarts: int = 0
    persistent: bool = True
    obeys: bool = False
    relapses: int = 0
    refusing: dict[str, list[Exception]] = field(default_factory=dict)
    calls: list[str] = field(default_factory=list)

    def _call(self, name: str) -> None:
        if self not in self.host.domains:
            raise refusal(libvirt.VIR_ERR_NO_DOMAIN)
        self.calls.append(name)
        if self.refusing.get(name):
            raise self.refusing[name].pop(0)

    def _become(self, power: int, why: int = 0) -> int:
        self.power, self.why = power, why
        if power == OFF and not self.persistent:
            self.host.domains.remove(self)
        return 0

    def state(self) -> list[int]:
        self._call("state")
        return [self.power, self.why]

    def isActive(self) -> int:  # noqa: N802 - libvirt's, as are all of these
        return int(self.power != OFF)

    def isPersistent(self) -> int:  # noqa: N802
        return int(self.persistent)

    def maxMemory(self) -> int:  # noqa: N802
        return 1024

    def suspend(self) -> int:
        if self.obeys:
            self._become(PAUSED)
        self._call("suspend")
        return self._become(PAUSED)

    def resume(self) -> int:
        self._call("resume")
        self.relapses -= 1
        if self.relapses >= 0:
            return 0
        return self._become(RUNNING, libvirt.VIR_DOMAIN_RUNNING_UNPAUSED)

    def create(self) -> int:
        self._call("create")
        return self._become(RUNNING)

    def destroy(self) -> int:
        self._call("destroy")
        return self._become(OFF)

    def shutdownFlags(self, _: int) -> int:  # noqa: N802
        self._call("shutdown")
        return self._become(OFF)

    def undefineFlags(self, _: int) -> int:  # noqa: N802
        self._call("undefine")
        self.host.domains.remove(self)
        return 0

    def autostart(self) -> int:
        self._call("autostart")
        return self.autostarts

    def setAutostart(self, autostart: int) -> int:  # noqa: N802
        self._call("setAutostart")
        self.autostarts = autostart
        return 0

    def jobInfo(self) -> list[int]:  # noqa: N802
        return [libvirt.VIR_DOMAIN_JOB_NONE]

    def agentSetResponseTimeout(self, _: int) -> int:  # noqa: N802
        return 0

    def XMLDesc(self, _: int) -> str:  # noqa: N802
        return f"<domain><name>{self.called}</name><mark>{self.mark}</mark></domain>"

    def metadata(self, *_: object) -> str:
        self._call("metadata")
        if not self.mark:
            raise refusal(libvirt.VIR_ERR_NO_DOMAIN_METADATA)
        return self.mark

    def setMetadata(self, _kind: int, text: str, *_: object) -> int:  # noqa: N802
        self._call("setMetadata")
        self.mark = text
        return 0

    def migrate3(self, there: "FakeHost", *_: object) -> "FakeDomain":
        self._call("migrate")
        self.host.domains.remove(self)
        return there.take(self.called, self.mark)


@dataclass(eq=False)
class FakeHost:
    """The libvirt of one host."""

    is_away: bool = False
    domains: list[FakeDomain] = field(default_factory=list)
    free: int = 4096

    def take(self, name: str = "web-0", mark: str = "") -> FakeDomain:
        """Have a guest run here."""
        domain = FakeDomain(self, name, mark=mark)
        self.domains.append(domain)
        return domain

    def isAlive(self) -> int:  # noqa: N802
        return int(not self.is_away)

    def lookupByName(self, name: str) -> FakeDomain:  # noqa: N802
        with suppress(StopIteration):
            return next(each for each in self.domains if each.called == name)
        raise refusal(libvirt.VIR_ERR_NO_DOMAIN)

    def lookupByUUIDString(self, _: str) -> FakeDomain:  # noqa: N802
        raise refusal(libvirt.VIR_ERR_NO_DOMAIN)

    def defineXML(self, xml: str) -> FakeDomain:  # noqa: N802
        name, mark = (xml.partition(f"<{each}>")[2] for each in ("name", "mark"))
        domain = self.take(name.partition("<")[0], mark.partition("</mark>")[0])
        domain.power = OFF
        return domain

    def getMemoryStats(self, _: int) -> dict[str, int]:  # noqa: N802
        return {"free": self.free}

    def domainEventRegisterAny(self, *_: object) -> int:  # noqa: N802
        return 0


def connecting(**hosts: FakeHost) -> Callable[[str, float], Any]:
    """Return what connects to *hosts*, each of which is the URI of its own name."""

    def connect(uri: str, _: float) -> FakeHost:
        if hosts[uri].is_away:
            raise UnreachableError(f"cannot connect to {uri}: it is away")
        return hosts[uri]

    return connect
