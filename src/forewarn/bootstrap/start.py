"""What happens before a server serves: everything is checked first, then written at once."""

import socket
import uuid
from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace
from datetime import datetime
from functools import partial
from pathlib import Path
from typing import Final

import structlog

from forewarn.clocks import SystemClock, VirtualClock
from forewarn.domain.access import ADMIN
from forewarn.domain.names import name_key
from forewarn.environment import ADMIN_TOKEN_FILE
from forewarn.files.fleet import (
    Fleet,
    FleetError,
    FleetMistakesError,
    examine_fleet,
    refuse_mistakes,
)
from forewarn.files.fleet_lines import FleetLines, subject_of
from forewarn.files.toml import NotTomlError, decode, place
from forewarn.operations.access import (
    RENEW_ADMIN,
    grant_admin,
    hash_secret,
    is_secret_of,
    new_secret,
)
from forewarn.operations.context import Context, Rules
from forewarn.operations.inventory import FleetChange, FleetPlan, apply_fleet, find_vm, plan_fleet
from forewarn.operations.pausing import pause_server
from forewarn.operations.placements import leave_moved
from forewarn.operations.recording import record_audit
from forewarn.operations.restoring import AHEAD, take_over_backup
from forewarn.operations.safeguards import ApplyOptions
from forewarn.ports.clock import VIRTUAL_NOW, Clock
from forewarn.ports.entries import Actor
from forewarn.ports.store import Store, StoreError, Transaction
from forewarn.private_files import UnsafeFileError, read_secret, write_secret
from forewarn.protocol.errors import ForewarnError
from forewarn.protocol.vocabulary import EventId, event_id
from forewarn.settings import Settings
from forewarn.settings_table import ClockKind, ExecutorKind
from forewarn.wording.durations import parse_duration

log = structlog.get_logger()

_ADMIN_TOKEN_PLACE: Final = "admin_token_place"  # noqa: S105 - where it is, not what it is
"""The setting that says where the replica that made the admin token has left it."""
_ADMIN_TOKEN_HASH: Final = "admin_token_hash"  # noqa: S105 - the name of a setting
"""The setting that says which admin token the server with this file knew last."""
# What a host is doing must not keep the server from answering polls.
_AT_START: Final = ApplyOptions(skip_busy=True)
_MOST_LINES: Final = 50
"""How many changes by the fleet file are logged one by one."""


class StartError(ForewarnError):
    """The server cannot start."""


@dataclass(frozen=True, slots=True, kw_only=True)
class FleetDeclaration:
    """A fleet file that could be read; its text says which line a later error is about.

    Its mistakes are refused when it is applied, together with those of the whole fleet.
    """

    path: Path
    text: str
    fleet: Fleet

    def check(self) -> None:
        """Refuse a file with mistakes that do not depend on the rest of the fleet."""
        try:
            refuse_mistakes(self.fleet.mistakes)
        except FleetError as error:
            raise self.blame(error) from error

    def host_name(self, name: str) -> str:
        """Return what the virtual machine *name* calls itself; *name* if it is not declared."""
        for vm in (each.vm for each in self.fleet.virtual_machines):
            if name_key(vm.name) == name_key(name):
                return vm.profile.computer_name or vm.resource_name
        return name

    def blame(self, error: ForewarnError) -> StartError:
        """Return *error* with the place in the file it is about."""
        lines = FleetLines(self.text)
        mistakes = error.mistakes if isinstance(error, FleetMistakesError) else (error,)
        placed = [(lines.find(subject_of(mistake)), mistake) for mistake in mistakes]
        placed.sort(key=lambda each: each[0] or 0)
        said = (f"{place(self.path, line)}: {mistake}" for line, mistake in placed)
        return StartError("\n".join(said))


@dataclass(frozen=True, slots=True, kw_only=True)
class StartingPoint:
    """What a server learns from its store when it starts.

    *change* is what the fleet file made of a fleet that was there.
    """

    clock: Clock
    token: str
    change: FleetChange


def read_fleet_declaration(path: Path | None) -> FleetDeclaration | None:
    """Read the fleet file, if there is one to read."""
    return None if path is None else read_declaration(path)


def read_declaration(path: Path) -> FleetDeclaration:
    """Read the fleet file at *path*."""
    try:
        text = path.read_text(encoding="utf-8-sig")
    except OSError as error:
        raise StartError(f"The fleet file {path} cannot be read: {error.strerror}.") from error
    except UnicodeDecodeError as error:
        raise StartError(f"The fleet file {path} is not UTF-8 text.") from error
    try:
        return FleetDeclaration(path=path, text=text, fleet=examine_fleet(decode(text)))
    except NotTomlError as error:
        raise StartError(f"{place(path, error.line)}: {error}") from error


def begin(store: Store, settings: Settings, fleet: Fleet | None, now: datetime) -> StartingPoint:
    """Take over *store*: its clock, the declared fleet and the lease, or nothing."""
    remarks: Sequence[str] = ()
    if fleet is not None:
        fleet, remarks = store.read(partial(leave_moved, fleet=fleet))
    plan = _plan(store, settings, fleet, now) if fleet is not None and settings.is_shared else None
    beginning = store.write(lambda tx: _begin(tx, settings, fleet, now, plan))
    _log_change(beginning.change)
    _warn("fleet_file_skipped", remarks)
    return beginning


def begin_as_declared(
    store: Store, settings: Settings, declaration: FleetDeclaration | None, now: datetime
) -> StartingPoint:
    """Take over *store*, with the place in the fleet file in what is refused because of it."""
    if declaration is None:
        return begin(store, settings, None, now)
    try:
        return begin(store, settings, declaration.fleet, now)
    except (StartError, StoreError):
        raise
    except ForewarnError as error:
        raise declaration.blame(error) from error


def make_rules(settings: Settings) -> Rules:
    """Return the rules *settings* give to every operation."""
    return Rules(
        notice=settings.notice,
        speed=settings.speed,
        user_initiated_limit=settings.user_initiated_limit,
        overdue_after=settings.longest_delay,
        is_simulated=settings.executor is ExecutorKind.SIMULATED,
        document_retention=parse_duration(settings.document_retention),
        is_shared=settings.is_shared,
        owner_grace=parse_duration(settings.owner_grace),
    )


def new_id() -> EventId:
    """Return an id nobody has had."""
    return event_id(str(uuid.uuid4()))


def _begin(
    tx: Transaction,
    settings: Settings,
    fleet: Fleet | None,
    now: datetime,
    plan: FleetPlan | None,
) -> StartingPoint:
    clock = _take_over_clock(tx, settings, now)
    context = _context(settings, clock.now(), now)
    is_restored = take_over_backup(tx, context)
    change = FleetChange() if fleet is None else _apply(tx, context, fleet, plan)
    if settings.paused:
        pause_server(tx, context, "started with --paused")
    if settings.default_vm is not None:
        _check_default_vm(tx, settings.default_vm)
    if is_restored:
        tx.next_epoch(ahead=AHEAD)
    # Last, because it is not part of the transaction.
    directory = settings.state_directory
    share = settings.is_shared
    token = _share_admin_token(tx, context, directory) if share else _admin_token(directory)
    if not share:
        note_admin_token(tx, context, directory, token)
    return StartingPoint(clock=clock, token=token, change=change)


def _context(settings: Settings, now: datetime, at: datetime) -> Context:
    rules = make_rules(settings)
    return Context(who=ADMIN, now=now, at=at, new_id=new_id, rules=rules, actor=Actor.SERVER)


def _plan(store: Store, settings: Settings, fleet: Fleet, now: datetime) -> FleetPlan:
    """Return what *fleet* changes, found out while other replicas can write."""
    context = _context(settings, now, now)
    plan = store.read(lambda reading: plan_fleet(reading, context, fleet, _AT_START))
    prepared = store.read(lambda reading: reading.prepare_topology(plan.after))
    return replace(plan, prepared=prepared)


def _apply(tx: Transaction, context: Context, fleet: Fleet, plan: FleetPlan | None) -> FleetChange:
    before = tx.topology()
    is_first = not (before.virtual_machines or before.scopes or before.hosts)
    change = apply_fleet(tx, context, fleet, options=_AT_START, plan=plan)
    return FleetChange() if is_first else change


def _log_change(change: FleetChange) -> None:
    """Warn of each thing that operators may have wanted otherwise since the last start."""
    _warn("fleet_file_changed", list(map(str, change.differences)))
    _warn("fleet_file_skipped", list(dict.fromkeys(each.reason for each in change.skipped)))


def _warn(event: str, lines: Sequence[str]) -> None:
    for line in lines[:_MOST_LINES]:
        log.warning(event, detail=line)
    if (more := len(lines) - _MOST_LINES) > 0:
        log.warning(event, detail=f"and {more} more")


def _take_over_clock(tx: Transaction, settings: Settings, now: datetime) -> Clock:
    known = tx.setting("clock")
    if known is not None and known != settings.clock:
        raise StartError(
            f"{settings.database_name} uses the {known} clock; use --clock {known}, or another "
            "database."
        )
    tx.put_setting("clock", settings.clock)
    if settings.clock is ClockKind.REAL:
        return SystemClock()
    stored = tx.setting(VIRTUAL_NOW)
    start = datetime.fromisoformat(stored) if stored else now.replace(microsecond=0)
    tx.put_setting(VIRTUAL_NOW, start.isoformat())
    return VirtualClock(start)


def _check_default_vm(tx: Transaction, name: str) -> None:
    try:
        find_vm(tx.topology(), name)
    except ForewarnError as error:
        raise StartError(f"--default-vm: {error}") from error


def _admin_token(directory: Path) -> str:
    path = directory / ADMIN_TOKEN_FILE
    try:
        directory.mkdir(parents=True, exist_ok=True)
        if not path.exists() or not path.stat().st_size:
            write_secret(path, new_secret())
        return read_secret(path)
    except UnsafeFileError as error:
        raise StartError(f"The admin token is not protected: {error}") from error
    except OSError as error:
        raise StartError(f"Cannot store the admin token in {path}: {error}.") from error


def _share_admin_token(tx: Transaction, context: Context, directory: Path) -> str:
    """Make the admin token of all replicas, unless another has; return it only if it is here."""
    live = [each for each in tx.tokens() if each.name == ADMIN and each.is_live(context.at)]
    if live:
        kept = _read_kept(directory)
        if any(is_secret_of(token, kept) for token in live):
            return kept
        log.info("admin_token_elsewhere", place=tx.setting(_ADMIN_TOKEN_PLACE))
        return ""
    return _make_shared_admin_token(tx, context, directory)


def _read_kept(directory: Path) -> str:
    try:
        return read_secret(directory / ADMIN_TOKEN_FILE)
    except (UnsafeFileError, OSError):
        return ""


def _make_shared_admin_token(
    tx: Transaction, context: Context, directory: Path, *, is_renewed: bool = False
) -> str:
    secret = new_secret()
    _keep_admin_token(directory, secret)
    place = _say_place(directory)
    grant_admin(tx, context, ADMIN, secret, renewed_in=place if is_renewed else "")
    tx.put_setting(_ADMIN_TOKEN_PLACE, place)
    return secret


def _say_place(directory: Path) -> str:
    return f"{(directory / ADMIN_TOKEN_FILE).absolute()} on {socket.gethostname()}"


def renew_shared_admin_token(store: Store, settings: Settings, at: datetime) -> Path:
    """Put a new admin token into the state directory; all replicas take it, and no other."""
    directory = settings.state_directory
    context = _context(settings, at, at)
    store.write(lambda tx: _make_shared_admin_token(tx, context, directory, is_renewed=True))
    return directory / ADMIN_TOKEN_FILE


def renew_admin_token(directory: Path) -> Path:
    """Put a new admin token into the state *directory*; a running server takes it from there."""
    return _keep_admin_token(directory, new_secret())


def note_admin_token(tx: Transaction, context: Context, directory: Path, secret: str) -> None:
    """Write down that *secret* is another than the last, if it is: a command has replaced it."""
    known, token_hash = tx.setting(_ADMIN_TOKEN_HASH), hash_secret(secret)
    if known == token_hash:
        return
    tx.put_setting(_ADMIN_TOKEN_HASH, token_hash)
    if known is not None:
        record_audit(tx, context, RENEW_ADMIN, ADMIN, detail=_say_place(directory))


def _keep_admin_token(directory: Path, secret: str) -> Path:
    path = directory / ADMIN_TOKEN_FILE
    try:
        directory.mkdir(parents=True, exist_ok=True)
        write_secret(path, secret)
    except OSError as error:
        raise StartError(f"The admin token {path} cannot be written: {error.strerror}.") from error
    return path


class AdminToken:
    """The secret of the admin, read again when it was renewed; *note* is told the new one."""

    def __init__(self, directory: Path, secret: str, note: Callable[[str], object]) -> None:
        self._note = note
        self._path = directory / ADMIN_TOKEN_FILE
        self._secret = secret
        self._seen = self._look()

    def __call__(self) -> str:
        """Return the secret; the last one that is known, if its file is gone or not safe."""
        seen = self._look()
        if seen is not None and seen != self._seen:
            self._seen = seen
            self._read()
        return self._secret

    def _read(self) -> None:
        try:
            secret = read_secret(self._path)
        except (UnsafeFileError, OSError) as error:
            log.warning("admin_token_refused", problem=str(error))
            return
        if secret != self._secret:
            self._secret = secret
            log.warning("admin_token_renewed", path=str(self._path))
            self._note(secret)

    def _look(self) -> tuple[int, int, int] | None:
        try:
            found = self._path.stat()
        except OSError:
            return None
        return found.st_ino, found.st_mtime_ns, found.st_ctime_ns
