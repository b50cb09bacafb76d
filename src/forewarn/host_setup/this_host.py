"""Applies a setup to this host and undoes it, and records what is ours before it is made."""

import fcntl
import json
import os
from collections.abc import Generator, Iterable
from contextlib import contextmanager, suppress
from dataclasses import asdict, dataclass, field
from ipaddress import IPv4Address
from pathlib import Path
from typing import Any, Final, assert_never

from forewarn.host_setup.bindings import HostSetupError, make_binding
from forewarn.host_setup.observing import observe
from forewarn.host_setup.planning import (
    DNSMASQ_FILE,
    HostSetup,
    HostState,
    SetupPlan,
    SetupRecord,
    dnsmasq_path,
    plan_apply,
    plan_undo,
    settle,
)
from forewarn.host_setup.programs import Programs
from forewarn.host_setup.steps import RemoveStep, RunStep, SetupStep, WriteStep
from forewarn.private_files import create_private, draft_of, is_trusted

RECORD_FILE: Final = "host-setup.json"
STATE_DIRECTORY: Final = Path("/var/lib/forewarn-host")


def encode_record(record: SetupRecord) -> str:
    """Return *record* as the content of its file."""
    return json.dumps(asdict(record), default=str, indent=1) + "\n"


def decode_record(text: str, path: Path) -> SetupRecord:
    """Return the record in *text*, which is from *path*, or refuse."""
    try:
        content = json.loads(text)
        setup = content["setup"]
        return SetupRecord(
            places=tuple(map(str, content["places"])),
            files=tuple(map(_decode_file, content["files"])),
            wanted_rules=str(content["wanted_rules"]),
            loaded_rules=str(content["loaded_rules"]),
            setup=None if setup is None else _decode_setup(setup),
        )
    except (ValueError, KeyError, TypeError, HostSetupError) as error:
        raise HostSetupError(
            f"{path} is damaged.",
            "remove it, run forewarn host setup --undo, and check: ip address; ip rule",
        ) from error


def _decode_setup(content: Any) -> HostSetup:
    router, dnsmasq, fleet = content["router"], content["dnsmasq"], content["fleet"]
    return HostSetup(
        bridges=tuple(map(str, content["bridges"])),
        interface=str(content["interface"]),
        bindings=tuple(make_binding(**each) for each in content["bindings"]),
        dnsmasq=None if dnsmasq is None else Path(dnsmasq),
        router=None if router is None else IPv4Address(router),
        libvirt=str(content["libvirt"]),
        fleet=None if fleet is None else Path(fleet),
    )


def _decode_file(text: str) -> Path:
    # It will be removed, so it must be a file that we can have made.
    path = Path(text)
    if path.name != DNSMASQ_FILE or not path.is_absolute():
        raise ValueError(f"{text} is not a file of ours")
    return path


_FOR_ALL: Final = 0o644
_FOR_ROOT: Final = 0o600


@dataclass(frozen=True, slots=True, kw_only=True)
class ThisHost:
    """The host this runs on, and the *directory* where it is recorded what is ours on it."""

    directory: Path = STATE_DIRECTORY
    programs: Programs = field(default_factory=Programs)

    def foresee(self, setup: HostSetup) -> SetupPlan:
        """Return what `apply` would do."""
        record = self.read_record()
        return plan_apply(setup, self.observe(record, setup), record)

    def apply(self, setup: HostSetup) -> tuple[SetupStep, ...]:
        """Make this host as *setup* wants it; return what had to be done."""
        self._require_root()
        plan = self.foresee(setup)
        self._check(plan.steps)
        with self._locked(make=True):
            plan = self.foresee(setup)
            self._write_record(plan.record)
            self._perform(plan.steps)
            settled = settle(setup, plan.record, self.observe(plan.record, setup))
            self._write_record(settled)
        return plan.steps

    def foresee_undo(self) -> SetupPlan:
        """Return what `undo` would do."""
        record = self.read_record()
        return plan_undo(self.observe(record), record)

    def undo(self) -> tuple[SetupStep, ...]:
        """Remove everything of ours from this host; return what had to be done."""
        self._require_root()
        with self._locked():
            # Without a record, rules are ours by the names of their tables.
            steps = self.foresee_undo().steps
            self._perform(steps)
            self._path.unlink(missing_ok=True)
            with suppress(OSError):  # not there, or something else is in it
                self.directory.rmdir()
        return steps

    def observe(self, record: SetupRecord, setup: HostSetup | None = None) -> HostState:
        """Return what is there, with the files of *record* and *setup*."""
        wanted = dnsmasq_path(setup) if setup is not None else None
        paths = (*record.files, *((wanted,) if wanted is not None else ()))
        return observe(self.programs, dict.fromkeys(paths), is_root=_is_root())

    def read_record(self) -> SetupRecord:
        """Return what is ours on this host."""
        try:
            is_safe = is_trusted(self._path)
            text = self._path.read_text(encoding="utf-8")
        except FileNotFoundError:
            return SetupRecord()
        except OSError as error:
            raise HostSetupError(
                f"{self._path} cannot be read: {error.strerror}.", "run this as root"
            ) from error
        if not is_safe:
            raise HostSetupError(
                f"Other users can write {self._path}, which names files to remove.",
                "name another directory with --state-dir",
            )
        return decode_record(text, self._path)

    @property
    def _path(self) -> Path:
        return self.directory / RECORD_FILE

    @staticmethod
    def _require_root() -> None:
        if not _is_root():
            raise HostSetupError(
                "Only root can change the network of this host.", "run this as root"
            )

    @contextmanager
    def _locked(self, *, make: bool = False) -> Generator[None]:
        """Keep others from changing the same at the same time: a hook and an operator do."""
        if make:
            self.directory.mkdir(mode=0o700, parents=True, exist_ok=True)
        elif not self.directory.is_dir():
            yield
            return
        descriptor = os.open(self.directory, os.O_RDONLY | os.O_DIRECTORY)
        try:
            fcntl.flock(descriptor, fcntl.LOCK_EX)
            yield
        finally:
            os.close(descriptor)

    def _check(self, steps: Iterable[SetupStep]) -> None:
        """Have nft refuse what this kernel cannot do before anything has changed."""
        for step in steps:
            if isinstance(step, RunStep) and step.words[0] == "nft":
                self.programs.run("nft", "--check", *step.words[1:], text=step.text)
            if isinstance(step, WriteStep) and not step.path.parent.is_dir():
                raise HostSetupError(
                    f"There is no directory {str(step.path.parent)!r}.", "correct --dnsmasq"
                )

    def _perform(self, steps: Iterable[SetupStep]) -> None:
        for step in steps:
            match step:
                case RunStep(words=words, text=text):
                    self.programs.run(*words, text=text)
                case WriteStep(path=path, text=text):
                    _write(path, text, _FOR_ALL)
                case RemoveStep(path=path):
                    path.unlink(missing_ok=True)
                case _:
                    assert_never(step)

    def _write_record(self, record: SetupRecord) -> None:
        if record != self.read_record():
            _write(self._path, encode_record(record), _FOR_ROOT)


def _is_root() -> bool:
    return os.geteuid() == 0


def _write(path: Path, text: str, mode: int) -> None:
    draft = draft_of(path)
    try:
        with create_private(draft) as file:
            file.write(text.encode())
            file.flush()
            os.fsync(file.fileno())
        draft.chmod(mode)
        draft.replace(path)
    except OSError as error:
        raise HostSetupError(f"{path} cannot be written: {error.strerror}.") from error
    finally:
        draft.unlink(missing_ok=True)
