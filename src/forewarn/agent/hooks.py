"""The programs that the agent runs: which there are, and how they are run.

| a hook is given | what |
|---|---|
| in its environment | that of the agent, and what `describe` says about the event |
| on standard input | the event as JSON, with the keys of the wire |
"""

import json
import os
import sys
from collections.abc import Collection, Iterator, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Final, Protocol

from forewarn.agent.cases import write_item
from forewarn.agent.vocabulary import HookOutcome, HookPhase
from forewarn.protocol.dates import write_date
from forewarn.protocol.document import Event
from forewarn.protocol.versions import NEWEST

NOT_YET: Final = 75
"""EX_TEMPFAIL of sysexits.h."""

LONGEST_VALUE: Final = 32_000
"""In bytes. Windows has room for 32,767 characters in a variable, Linux for 128 KiB."""

_POWERSHELL: Final = ("powershell.exe", "-NoProfile", "-ExecutionPolicy", "Bypass", "-File")
_WINDOWS_RUNNERS: Final[Mapping[str, tuple[str, ...]]] = {
    ".ps1": _POWERSHELL,
    ".cmd": (),
    ".bat": (),
    ".exe": (),
}
"""What runs a file on Windows, by the end of its name; others cannot be run."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Hook:
    """A program to run: its name, which stands for it on disk, and its command.

    One that is not runnable is a hook all the same: to overlook it would be to approve without it.
    """

    name: str
    command: tuple[str, ...] | str
    """The program and its arguments, or the line that Windows is given."""
    is_runnable: bool = True


class FolderMemory(Protocol):
    """Where it is kept which folders there were: a mount may be missing after a restart."""

    def recall_folders(self) -> frozenset[Path]:
        """Return what was kept last."""

    def keep_folders(self, folders: Collection[Path]) -> None:
        """Keep *folders*, if that is possible."""


class HookFinder:
    """Finds the hooks there are now. A folder that was there once and is gone fails as a hook.

    To overlook it would be to approve without what was in it.
    """

    def __init__(
        self, folder: Path, commands: Mapping[HookPhase, tuple[str, ...]], memory: FolderMemory
    ) -> None:
        self._commands = commands
        self._folder = folder
        self._folders = (folder, *(_phase_folder(folder, phase) for phase in HookPhase))
        self._memory = memory
        self._known = memory.recall_folders() & frozenset(self._folders)
        self.find()

    def find(self) -> Mapping[HookPhase, tuple[Hook, ...]]:
        """Return the hooks of every phase."""
        found = {
            phase: find_hooks(self._folder, phase, self._commands.get(phase, ()), known=self._known)
            for phase in HookPhase
        }
        there = frozenset(filter(os.path.lexists, self._folders))
        if not there <= self._known:
            self._known |= there
            self._memory.keep_folders(self._known)
        return found

    def find_missing(self) -> tuple[Path, ...]:
        """Return the folders that were there once and are gone."""
        return tuple(
            folder
            for folder in self._folders
            if folder in self._known and not os.path.lexists(folder)
        )


def find_hooks(
    folder: Path,
    phase: HookPhase,
    commands: tuple[str, ...] = (),
    *,
    known: Collection[Path] = (),
    platform: str = sys.platform,
) -> tuple[Hook, ...]:
    """Return the hooks of *phase* in *folder* by name, then the *commands* as they were given.

    A folder that is *known* and not there any more is a hook that cannot be run.
    """
    is_windows = platform == "win32"
    return (
        *(_make_hook(path, is_windows=is_windows) for path in _list_files(folder, phase, known)),
        *_make_inline_hooks(commands, is_windows=is_windows),
    )


def find_misfits(folder: Path, *, platform: str = sys.platform) -> tuple[Path, ...]:
    """Return what is in the folders of the phases and cannot be run, and so fails as a hook."""
    is_windows = platform == "win32"
    paths = dict.fromkeys(path for phase in HookPhase for path in _list_files(folder, phase))
    return tuple(path for path in paths if not _make_hook(path, is_windows=is_windows).is_runnable)


def find_strays(folder: Path) -> tuple[Path, ...]:
    """Return what is in *folder* beside the folders of the phases, and so is never run."""
    if not os.path.isdir(folder):  # noqa: PTH112 - Path.is_dir may raise
        return ()
    folders = {_phase_folder(folder, phase) for phase in HookPhase}
    return tuple(path for path in _list_entries(folder) if path not in folders)


def describe(
    event: Event, phase: HookPhase, *, encoding: str = sys.getfilesystemencoding()
) -> Mapping[str, str]:
    """Return the variables that tell a hook about *event*; the first seven are widely known.

    What an environment cannot hold is replaced, and what is too long for it is cut.
    """
    duration = event.duration_in_seconds
    variables = {
        "EVENT_ID": event.event_id,
        "EVENT_TYPE": event.event_type,
        "EVENT_STATUS": event.event_status,
        "EVENT_SOURCE": event.event_source or "",
        "EVENT_NOTBEFORE": _write_not_before(event),
        "EVENT_RESOURCES": " ".join(event.resources),
        "EVENT_RESOURCETYPE": event.resource_type,
        "EVENT_DURATION": str(-1 if duration is None else duration),
        "EVENT_DESCRIPTION": event.description,
        "EVENT_PHASE": phase,
    }
    return {name: _fit(value, encoding) for name, value in variables.items()}


def write_input(event: Event) -> bytes:
    """Return *event* as the newest api-version writes it, which is what a hook can read."""
    return json.dumps(write_item(event)).encode("ascii")


def read_status(status: int) -> HookOutcome:
    """Return what the exit status of a hook means."""
    return {0: HookOutcome.READY, NOT_YET: HookOutcome.NOT_YET}.get(status, HookOutcome.FAILED)


def _phase_folder(folder: Path, phase: HookPhase) -> Path:
    return folder / f"{phase}.d"


def _list_files(folder: Path, phase: HookPhase, known: Collection[Path] = ()) -> tuple[Path, ...]:
    is_expected = folder in known or os.path.lexists(folder)
    if is_expected and not os.path.exists(folder):  # noqa: PTH110 - Path.exists may raise
        return (folder,)  # it is gone, or a link to nothing
    return _list_entries(_phase_folder(folder, phase), known)


def _list_entries(folder: Path, known: Collection[Path] = ()) -> tuple[Path, ...]:
    """Return what is in *folder*, or the folder itself if nobody can tell: it fails as a hook."""
    try:
        found = sorted(folder.iterdir(), key=lambda path: path.name)
    except FileNotFoundError:
        return (folder,) if folder in known or os.path.lexists(folder) else ()
    except OSError:
        return (folder,)
    return tuple(path for path in found if not path.name.startswith(".") and path.name[-1] != "~")


def _make_hook(path: Path, *, is_windows: bool) -> Hook:
    runner = _find_runner(path, is_windows=is_windows)
    return Hook(
        name=path.name, command=(*(runner or ()), str(path)), is_runnable=runner is not None
    )


def _make_inline_hooks(commands: tuple[str, ...], *, is_windows: bool) -> Iterator[Hook]:
    for number, command in enumerate(commands):
        # No file has a name with a slash, so that none is taken for a command, and the same command
        # twice is two hooks.
        name = f"{'cmd /c' if is_windows else '/bin/sh -c'} {command}"
        times = commands[:number].count(command) + 1
        yield Hook(
            name=name if times == 1 else f"{times}. {name}",
            # cmd.exe takes what is between the outermost quotes as it is; a list would be quoted in
            # another way than it reads.
            command=f'cmd.exe /d /s /c "{command}"' if is_windows else ("/bin/sh", "-c", command),
        )


def _find_runner(path: Path, *, is_windows: bool) -> tuple[str, ...] | None:
    try:
        is_file = path.is_file()
    except OSError:  # it is a link into a folder that we may not enter
        is_file = False
    if not is_file:
        return None
    if is_windows:
        return _WINDOWS_RUNNERS.get(path.suffix.lower())
    return () if os.access(path, os.X_OK) else None


def _fit(value: str, encoding: str) -> str:
    encoded = value.replace("\0", "").encode(encoding, "replace")
    cut = encoded[:LONGEST_VALUE].decode(encoding, "ignore")
    if len(encoded) > LONGEST_VALUE:
        return cut.rpartition(" ")[0] or cut  # half a name is that of another machine
    return cut


def _write_not_before(event: Event) -> str:
    return "" if event.not_before is None else write_date(event.not_before, NEWEST.not_before)
