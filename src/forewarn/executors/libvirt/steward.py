"""Carries out one impact on a guest of libvirt, and writes down how it ended. A process of its own.

It outlives the server: a guest that it has suspended is resumed in time whatever happens to us. It
is handed the file of its task open and locked, as an attendant is, and leaves the same files.
Whoever finds the file without the lock starts another one, which goes on from the domain's mark.
"""

import json
import os
import queue
import signal
import sys
import threading
from collections.abc import Callable
from contextlib import suppress
from dataclasses import replace
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import Final

import libvirt

from forewarn.domain.impact import ImpactStatus
from forewarn.executors.attendant import ENDING, OUTPUT, claim, elapsed_seconds, write_ending
from forewarn.executors.libvirt.api import (
    Domain,
    HostConnection,
    LibvirtError,
    UnreachableError,
    connect,
    is_missing,
    run_events,
)
from forewarn.executors.libvirt.decisions import Act, End, LookAgain, Power, Repair, Sight, decide
from forewarn.executors.libvirt.deeds import (
    SIMPLE,
    DeedError,
    Destination,
    choose_destination,
    leave,
    migrate,
    move,
    resume,
    start,
)
from forewarn.executors.libvirt.domains import (
    find_domain,
    has_autostart,
    is_migrating,
    mark_of,
    power_of,
    put_mark,
)
from forewarn.executors.libvirt.marks import DomainMark, MarkPhase
from forewarn.executors.libvirt.plans import HostPlace, ImpactPlan, read_plan
from forewarn.protocol.vocabulary import EventType
from forewarn.wording.durations import format_duration

BEGUN: Final = ".acting"
"""The suffix of the file that is there once a steward was about to set a mark."""


class StewardNotes:
    """What stewards of one task leave on disk, beside its file."""

    def __init__(self, claim_path: Path) -> None:
        self._begun = claim_path.with_suffix(BEGUN)
        self._output = claim_path.with_suffix(OUTPUT)
        self._is_begun = False
        self._last = ""

    @property
    def has_begun(self) -> bool:
        """Whether a steward was about to mark the domain, this one or one before."""
        return self._is_begun or self._begun.exists()

    def begin(self) -> None:
        """Remember that the domain is about to be marked."""
        descriptor = claim(self._begun, {})
        if descriptor is not None:
            os.close(descriptor)
        self._is_begun = True

    def say(self, word: str) -> None:
        """Have operators know what it waits for."""
        if word != self._last:
            self._last = word
            with suppress(OSError):  # guests are resumed on a full disk, too
                self._output.touch(mode=0o600)
                with self._output.open("a", encoding="utf-8") as file:
                    file.write(f"{word}\n")


_LOOK_SECONDS: Final = 1.0
_ENDINGS: Final = {ImpactStatus.DONE: MarkPhase.DONE, ImpactStatus.FAILED: MarkPhase.FAILED}


class Steward:
    """Looks at a domain, decides and acts, until the impact of *plan* is over.

    *now* returns the real time, *open_uri* a connection within so many seconds.
    """

    def __init__(
        self,
        plan: ImpactPlan,
        notes: StewardNotes,
        now: Callable[[], datetime],
        open_uri: Callable[[str, float], HostConnection] = connect,
    ) -> None:
        self._plan = plan
        self._notes = notes
        self._now = now
        self._open_uri = open_uri
        self._connections: dict[str, HostConnection] = {}
        self._watched: Domain | None = None
        self._changed = threading.Event()
        self._witnessed: DomainMark | None = None
        self._has_restarted = False
        self._was_transient = False
        self._is_called_off = False
        self._repaired: Repair | None = None
        self._trouble = ""

    def call_off(self) -> None:
        """Have a suspended guest resumed at once."""
        self._is_called_off = True
        self._changed.set()

    def attend(self) -> End:
        """Return how the impact ended."""
        deadline = self._now() + self._plan.connect_timeout
        end: End | None = None
        while end is None:
            try:
                end = self._step()
                deadline = self._now() + self._plan.connect_timeout
            except UnreachableError as error:
                end = self._await_host(error, deadline)
            except DeedError as error:
                end = self._end(_failed(str(error)))
            except LibvirtError as error:
                end = self._judge(error)
            except Exception as error:
                if not (self._plan.suspends and self._notes.has_begun):
                    raise
                self._notes.say(f"an error occurred: {error!r}")  # nobody else resumes the guest
                self._pause()
        return end

    def _await_host(self, error: UnreachableError, deadline: datetime) -> End | None:
        self._disconnect()
        if not self._notes.has_begun and self._now() >= deadline:
            return _failed(f"{error}; nothing was begun")
        self._notes.say(str(error))
        self._pause()
        return None

    def _judge(self, error: LibvirtError) -> End | None:
        """Return what it means that libvirt has refused something; None: look again."""
        if not all(self._is_alive(each) for each in self._connections.values()):
            self._disconnect()
            self._notes.say(f"the connection was lost: {error}")
        elif self._witnessed and self._witnessed.phase is MarkPhase.MIGRATE:
            self._trouble = f": {error}"  # what became of it is for the next look to say
        elif self._repaired is Repair.RESUME:
            self._notes.say(f"libvirt does not resume the guest yet: {error}")
        elif not is_missing(error):
            return self._end(_failed(f"libvirt refused it: {error}"))
        self._pause()
        return None

    def _step(self) -> End | None:
        domain, host = self._find()
        sight = self._look(domain, host)
        now = self._now()
        if self._is_called_off and sight.mark and sight.mark.phase is MarkPhase.SUSPEND:
            now = max(now, sight.mark.until or now)
        decision = decide(self._plan, sight, now)
        match decision:
            case End():
                return self._end(replace(decision, reason=decision.reason + self._trouble))
            case LookAgain():
                self._notes.say(decision.word)
                self._pause(decision.until)
            case Act() if domain is not None:
                self._act(decision, domain, sight)
            case Repair() if domain is not None:
                self._repair(decision, domain)
        return None

    def _find(self) -> tuple[Domain | None, str]:
        """Return the domain and its host: the one it was on, unless it is elsewhere by our doing.

        A domain is never looked for on other hosts if it can only be on its own.
        """
        plan = self._plan
        here = find_domain(self._connect(plan.here), plan.vm, plan.vm_id)
        if here is not None and (not plan.others or here.isActive()):
            return here, plan.host
        mark = None if here is None else mark_of(here)
        to = mark.to if mark and self._is_of_plan(mark) else None
        places = [each for each in plan.others if here is None or each.host == to]
        away: UnreachableError | None = None
        for place in sorted(places, key=lambda each: each.host != self._sent_to):
            try:
                there = find_domain(self._connect(place), plan.vm, plan.vm_id)
            except UnreachableError as error:  # it may be on one of the others
                away = away or error
                continue
            if there is not None and self._is_ours(there) and (here is None or there.isActive()):
                return there, place.host
        if away is not None:
            raise away
        return here, plan.host

    @property
    def _sent_to(self) -> str | None:
        return self._witnessed.to if self._witnessed else None

    def _is_ours(self, domain: Domain) -> bool:
        mark = mark_of(domain)
        return mark is not None and self._is_of_plan(mark)

    def _is_of_plan(self, mark: DomainMark) -> bool:
        return mark.event_id == self._plan.event_id

    def _look(self, domain: Domain | None, host: str) -> Sight:
        has_begun = self._notes.has_begun
        if domain is None:
            was_transient = self._was_transient
            return Sight(
                power=Power.GONE, host=host, has_begun=has_begun, was_transient=was_transient
            )
        self._watch(domain, host)
        mark, witnessed = self._read_mark(domain), self._witnessed
        power, was_paused = power_of(domain)
        return Sight(
            power=power,
            host=host,
            mark=mark,
            was_paused=was_paused,
            is_moving=is_migrating(domain),
            has_begun=has_begun,
            is_witness=bool(mark and witnessed and mark.phase is witnessed.phase),
            has_restarted=self._has_restarted,
        )

    def _read_mark(self, domain: Domain) -> DomainMark | None:
        """Return the mark of the domain; whoever spoils it does not keep a guest suspended."""
        found, own = mark_of(domain), self._witnessed
        is_suspended = own is not None and own.phase is MarkPhase.SUSPEND
        return own if is_suspended and (found is None or self._is_of_plan(found)) else found

    def _act(self, act: Act, domain: Domain, sight: Sight) -> None:
        plan, mark = self._plan, sight.mark
        to = mark.to if mark and self._is_of_plan(mark) else None
        self._was_transient = not domain.isPersistent()
        if plan.event_type is EventType.REDEPLOY and self._was_transient:
            raise DeedError("the domain is transient: libvirt forgets it when it is shut off")
        destination = self._destination(domain, to)
        self._notes.begin()
        marked = self._mark(act, domain, sight, destination)
        put_mark(domain, marked)
        self._has_restarted = False
        self._witnessed = marked
        self._notes.say(f"it has begun: {act.phase}")
        if destination and act.phase is MarkPhase.MIGRATE:
            migrate(plan, domain, destination)
        elif destination and act.phase is MarkPhase.MOVE:
            move(plan, domain, self._connect(plan.here), destination)
        else:
            SIMPLE[act.phase](domain)

    def _mark(
        self, act: Act, domain: Domain, sight: Sight, destination: Destination | None
    ) -> DomainMark:
        known = sight.mark if sight.mark and self._is_of_plan(sight.mark) else None
        # What a steward before this one has found, as the move may have turned it off since.
        autostart = known.has_autostart if known else self._plan.moves and has_autostart(domain)
        return DomainMark(
            event_id=self._plan.event_id,
            event_type=self._plan.event_type,
            epoch=self._plan.epoch,
            phase=act.phase,
            at=self._now(),
            until=act.until,
            to=destination.place.host if destination else None,
            has_autostart=autostart,
            was_resumed=sight.was_paused,
        )

    def _destination(self, domain: Domain, to: str | None) -> Destination | None:
        """Return where the guest goes, if it goes anywhere: there is room before it is touched."""
        plan = self._plan
        if not plan.moves:
            return None
        known = next((each for each in plan.others if each.host == to), None)
        if known is not None:
            return Destination(place=known, connection=self._connect(known))
        return choose_destination(plan, domain, self._connect)

    def _repair(self, repair: Repair, domain: Domain) -> None:
        if self._repaired:
            self._pause()  # it did not last: the disk of the host is full, say
        self._repaired = repair
        if repair is Repair.RESUME:
            resume(domain)
        else:
            start(domain)
            self._has_restarted = True

    def _end(self, end: End) -> End:
        """Have the domain say that it is over, for whoever asks later, and tidy up."""
        phase = _ENDINGS.get(end.status)
        if phase is None:
            return end
        with suppress(LibvirtError, UnreachableError):  # it is over all the same
            domain, host = self._find()
            mark = None if domain is None else mark_of(domain)
            if domain is not None and mark is not None and self._is_of_plan(mark):
                put_mark(domain, replace(mark, phase=phase, reason=end.reason, until=None))
                if mark.has_autostart:
                    domain.setAutostart(1)
            if host != self._plan.host:
                left = find_domain(self._connect(self._plan.here), self._plan.vm, self._plan.vm_id)
                if left is not None and self._is_ours(left):
                    leave(left)
        return end

    def _connect(self, place: HostPlace) -> HostConnection:
        connection = self._connections.get(place.host)
        if connection is None:
            connection = self._open_uri(place.uri, self._plan.connect_timeout.total_seconds())
            self._connections[place.host] = connection
        return connection

    def _disconnect(self) -> None:
        """Forget connections, and with them what was seen: nobody knows what was missed."""
        self._connections.clear()
        self._watched = self._witnessed = None

    def _is_alive(self, connection: HostConnection) -> bool:
        with suppress(LibvirtError):
            return connection.isAlive() == 1
        return False

    def _watch(self, domain: Domain, host: str) -> None:
        if self._watched is not None:
            return
        connection = self._connections[host]
        reboot, lifecycle = (
            libvirt.VIR_DOMAIN_EVENT_ID_REBOOT,
            libvirt.VIR_DOMAIN_EVENT_ID_LIFECYCLE,
        )
        for kind, heard in ((reboot, self._hear_restart), (lifecycle, self._hear_change)):
            with suppress(LibvirtError):  # without news of it the state still tells
                connection.domainEventRegisterAny(domain, kind, heard, None)
        self._watched = domain

    def _hear_restart(self, *_: object) -> None:
        self._has_restarted = True
        self._changed.set()

    def _hear_change(self, _connection: object, _domain: object, event: int, *_: object) -> None:
        if event == libvirt.VIR_DOMAIN_EVENT_STARTED:
            self._has_restarted = True
        self._changed.set()

    def _pause(self, until: datetime | None = None) -> None:
        left = _LOOK_SECONDS if until is None else (until - self._now()).total_seconds()
        self._changed.wait(min(max(left, 0.0), _LOOK_SECONDS))
        self._changed.clear()


def main(claim_path: Path) -> None:
    """Carry out the task and write down how it ended."""
    plan = read_plan(json.loads(claim_path.read_bytes())["plan"])
    notes = StewardNotes(claim_path)
    # Blocked in all threads, and awaited by one of them. Python runs a handler in the main thread
    # only, and a main thread that waits does not wake up if another thread receives the signal.
    signal.pthread_sigmask(signal.SIG_BLOCK, {signal.SIGTERM})
    run_events()
    steward = Steward(plan, notes, go_on_from(datetime.now(UTC), elapsed_seconds))
    ends: queue.Queue[End] = queue.Queue()

    def await_stop() -> None:
        signal.sigwait({signal.SIGTERM})
        steward.call_off()

    def attend() -> None:
        try:
            ends.put(steward.attend())
        except Exception as error:  # noqa: BLE001 - somebody has to look at it
            ends.put(_lost(notes, f"it ended with an error: {error!r}"))

    # A daemon: a call that never returns must not keep the end from being told.
    threading.Thread(target=attend, daemon=True).start()
    # Stopping a service may stop whatever it has started: no guest is to be left suspended by it.
    threading.Thread(target=await_stop, daemon=True).start()
    try:
        end = ends.get(timeout=plan.limit.total_seconds())
    except queue.Empty:
        if plan.suspends and notes.has_begun:
            end = ends.get()  # nobody else would resume the guest when its host is back
        else:
            end = _lost(notes, f"it did not end within {format_duration(plan.limit)}")
    content = {"status": end.status, "reason": end.reason, "host": end.moved_to}
    write_ending(claim_path.with_suffix(ENDING), content)
    os._exit(0)


def go_on_from(moment: datetime, elapsed: Callable[[], float]) -> Callable[[], datetime]:
    """Return a clock that nobody sets: a guest is not suspended for longer by that."""
    began = elapsed()
    return lambda: moment + timedelta(seconds=elapsed() - began)


def _lost(notes: StewardNotes, reason: str) -> End:
    if not notes.has_begun:
        return _failed(f"{reason}; nothing was begun")
    advice = "check the virtual machine, then settle the task"
    return End(status=ImpactStatus.UNKNOWN, reason=f"{reason}; {advice}")


def _failed(reason: str) -> End:
    return End(status=ImpactStatus.FAILED, reason=reason)


if __name__ == "__main__":
    main(Path(sys.argv[1]))
