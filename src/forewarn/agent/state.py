"""What the agent remembers: a file that is replaced as a whole, so that it is never half written.

{"version": 1, "cases": [{"event": {...}, "verdict": "handle", "phase": "scheduled", ...}]}
"""

import contextlib
import json
import logging
import os
import sys
from collections.abc import Collection, Mapping
from pathlib import Path
from typing import Any, BinaryIO, Final, Self

from forewarn.agent.cases import Case, Cases, write_item
from forewarn.agent.errors import BrokenStateError, StateError
from forewarn.agent.vocabulary import Consent, HookOutcome, HookPhase, RuleVerdict
from forewarn.protocol.document import read_event

VERSION: Final = 1

_log = logging.getLogger("forewarn.agent")


class StateFile:
    """The file `state.json` in a folder that only one agent at a time may use.

    Beside it are the files `name`, with the name that the server has given this machine last, and
    `folders`, with the folders in which hooks were looked for and that were there.

    It is locked inside `with`. One that is dry is only read, and locked by nobody.
    """

    def __init__(self, folder: Path, *, is_dry: bool = False) -> None:
        self.path = folder / "state.json"
        self._is_dry = is_dry
        self._lock: BinaryIO | None = None

    def __enter__(self) -> Self:
        if not self._is_dry:
            self._take_lock()
        return self

    def __exit__(self, *_: object) -> None:
        if self._lock is not None:
            self._lock.close()

    def _set_aside(self) -> None:
        if not self._is_dry:
            aside = self.path.with_suffix(".broken")
            with contextlib.suppress(OSError):
                self.path.replace(aside)
                _log.warning("state_set_aside file=%s", aside)

    def _take_lock(self) -> None:
        """Make the folder, and keep other agents out of it."""
        folder = self.path.parent
        try:
            folder.mkdir(mode=0o700, parents=True, exist_ok=True)
            self._lock = (folder / "lock").open("ab")
        except OSError as error:
            raise _unusable(folder, str(error)) from error
        if not _try_lock(self._lock):
            raise StateError(
                f"Another agent is using {folder}. Stop it first, or set state_dir to"
                " another folder."
            )

    def load(self) -> Cases:
        """Return the cases that were saved last. What is broken is set aside."""
        try:
            return self.read()
        except BrokenStateError as error:
            # To stop here would leave the machine without an agent until somebody comes.
            _log.error("state_broken error=%s", error)
            self._set_aside()
            return {}

    def read(self) -> Cases:
        """Return the cases that were saved last, or raise StateError."""
        try:
            content = self.path.read_bytes()
        except FileNotFoundError:
            return {}
        except OSError as error:
            raise StateError(f"{self.path} cannot be read: {error}.") from error
        try:
            return decode_cases(content)
        except (ValueError, KeyError, TypeError, AttributeError, RecursionError) as error:
            raise BrokenStateError(
                f"{self.path} is not a valid state file: {error!r}. At its next start, the agent"
                " sets it aside and forgets which hooks have run."
            ) from error

    def save(self, cases: Cases) -> None:
        """Replace the file; when this returns, *cases* survive a power cut."""
        if self._is_dry:
            return
        try:
            _replace(self.path, encode_cases(cases))
        except OSError as error:
            raise StateError(f"{self.path} cannot be written: {error}.") from error

    def keep_name(self, name: str) -> None:
        """Keep what the server calls this machine; it is only of use, so trouble is no trouble."""
        if self.recall_name() != name:
            self._keep("name", name.encode("utf-8", "surrogatepass"))

    def recall_name(self) -> str | None:
        """Return what the server has called this machine, None if nobody knows."""
        try:
            return self.path.with_name("name").read_text(encoding="utf-8") or None
        except (OSError, UnicodeDecodeError):
            return None

    def keep_folders(self, folders: Collection[Path]) -> None:
        """Keep which *folders* of hooks there are; trouble is no trouble, as with the name."""
        self._keep("folders", json.dumps(sorted(map(str, folders))).encode("ascii"))

    def recall_folders(self) -> frozenset[Path]:
        """Return which folders of hooks there were."""
        try:
            return frozenset(map(Path, json.loads(self.path.with_name("folders").read_bytes())))
        except (OSError, ValueError, TypeError, RecursionError):
            return frozenset()

    def _keep(self, file: str, content: bytes) -> None:
        if not self._is_dry and self._lock is not None:
            with contextlib.suppress(OSError):
                _replace(self.path.with_name(file), content)


def check_folder(folder: Path) -> None:
    """Raise StateError if no agent could keep its state in *folder*, and change nothing there."""
    nearest = next(path for path in (folder, *folder.absolute().parents) if os.path.lexists(path))
    if not nearest.is_dir():
        raise _unusable(folder, f"{nearest} is not a folder")
    for path in (nearest, folder / "lock"):
        if os.path.lexists(path) and not os.access(path, os.W_OK):
            raise _unusable(folder, f"{path} cannot be written to")


def encode_cases(cases: Cases) -> bytes:
    """Return *cases* as JSON."""
    content = {"version": VERSION, "cases": [_write_case(case) for case in cases.values()]}
    return json.dumps(content, indent=1).encode("ascii")


def decode_cases(content: bytes) -> Cases:
    """Return the cases in *content*, or raise one of the errors of what is not well-formed."""
    decoded: dict[str, Any] = json.loads(content)
    if decoded["version"] != VERSION:
        raise ValueError(
            f"its version is {decoded['version']}, but this agent needs version {VERSION}"
        )
    cases = map(_read_case, decoded["cases"])
    return {case.event.event_id: case for case in cases}


def _write_case(case: Case) -> Mapping[str, object]:
    return {
        "event": write_item(case.event),
        "verdict": case.verdict,
        "phase": case.phase,
        "outcomes": case.outcomes,
        "consent": case.consent,
        "may_postpone": case.may_postpone,
    }


def _read_case(content: Mapping[str, Any]) -> Case:
    return Case(
        event=read_event(content["event"]),
        verdict=RuleVerdict(content["verdict"]),
        phase=HookPhase(content["phase"]),
        outcomes={
            HookPhase(phase): {hook: HookOutcome(outcome) for hook, outcome in outcomes.items()}
            for phase, outcomes in content["outcomes"].items()
        },
        consent=Consent(content["consent"]),
        may_postpone=bool(content["may_postpone"]),
    )


def _unusable(folder: Path, reason: str) -> StateError:
    return StateError(
        f"{folder} cannot store the state of the agent: {reason}. Make it writable, or set"
        " state_dir to another folder."
    )


def _replace(path: Path, content: bytes) -> None:
    """Write *content* beside *path*, and put it into its place only when it is on disk."""
    beside = path.with_suffix(".new")
    path.parent.mkdir(mode=0o700, parents=True, exist_ok=True)  # it may have been removed
    with beside.open("wb") as file:
        file.write(content)
        file.flush()
        os.fsync(file.fileno())
    beside.replace(path)
    _sync_folder(path.parent)


def _sync_folder(folder: Path) -> None:
    if sys.platform == "win32":
        return  # a folder cannot be opened there, and the rename is in the journal of NTFS
    descriptor = os.open(folder, os.O_RDONLY)
    try:
        os.fsync(descriptor)
    finally:
        os.close(descriptor)


if sys.platform == "win32":
    import msvcrt

    def _try_lock(file: BinaryIO) -> bool:
        try:
            msvcrt.locking(file.fileno(), msvcrt.LK_NBLCK, 1)
        except OSError:
            return False
        return True

else:

    def _try_lock(file: BinaryIO) -> bool:
        try:
            import fcntl
        except ModuleNotFoundError:
            return True  # only where it is withheld on purpose
        try:
            fcntl.flock(file, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except OSError:
            return False
        return True
