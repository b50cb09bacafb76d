"""What is looked at in the server that answers: may we, does its time agree, is it up to date."""

import re
from collections.abc import Callable, Iterator, Mapping
from datetime import datetime, timedelta
from email.utils import parsedate_to_datetime
from typing import Final

from forewarn.cli.errors import CommandError
from forewarn.cli.failures import ServerRefusedError
from forewarn.cli.output import Row
from forewarn.cli.session import Session
from forewarn.domain.finding import Finding, FindingVerdict, doubtful, fine, wrong
from forewarn.domain.standing import NEEDS_OPERATOR, MaintenanceStatus
from forewarn.wording.durations import format_duration

SKEWED: Final = timedelta(seconds=5)
"""By so much two clocks may differ before it is worth a warning."""
UNUSABLY_SKEWED: Final = timedelta(minutes=1)
"""From here on NotBefore means something else there than here."""
RECENT_JUMP: Final = timedelta(days=1)
"""A jump of the server's clock is worth a warning for so long."""
LAGGING: Final = timedelta(seconds=2)
"""A replica that is behind for so long has more to do than to keep up."""
SLOW_DELIVERY: Final = timedelta(minutes=5)
"""A message that has waited for so long is not just under way."""

_LOOP: Final = re.compile(r'forewarn_loop_failures_total\{loop="(.*)"\}')
_SOURCE: Final = re.compile(r'forewarn_discovery_working\{source="(.*)"\}')
_SAMPLE: Final = re.compile(r"^(\w+(?:\{[^}]*\})?) (\S+)$", re.MULTILINE)


def examine_server(session: Session, now: datetime) -> Iterator[Finding]:
    """Look at the server of *session*; *now* is the time of this machine."""
    try:
        answer = session.fetch("healthz")
    except CommandError as error:
        yield wrong("control endpoint", str(error), error.hint)
        return
    yield fine("control endpoint", f"{session.server} answers.")
    yield _skew(answer.headers.get("date"), now)
    yield _token(session)
    try:
        samples = _SAMPLE.finditer(session.fetch("metrics").text)
    except CommandError as error:
        yield wrong("metrics", str(error), error.hint)
        return
    figures = {found[1]: float(found[2]) for found in samples}
    server = _show(session)
    yield from _jumps(session, figures, now)
    yield _store(figures)
    yield _lease(figures, server, now)
    yield from _replicas(figures, server)
    yield _loops(figures)
    yield _pause(figures)
    yield _executors(figures, server)
    yield from _discovery(session, figures)
    yield _outbox(figures)
    yield _overdue(figures)
    yield from _maintenances(server)
    yield from _found(server)


def _skew(date: str | None, now: datetime) -> Finding:
    check = "clock skew"
    if date is None:
        return doubtful(check, "The server does not report its time.", "try: forewarn clock show")
    skew = abs(parsedate_to_datetime(date) - now)
    sentence = f"The clocks of the server and of this machine differ by {_say(skew)}."
    hint = "try: timedatectl status, here and there"
    if skew > UNUSABLY_SKEWED:
        return wrong(check, sentence, hint)
    if skew > SKEWED:
        return doubtful(check, sentence, hint)
    return fine(check, "The clocks of the server and of this machine agree.")


def _token(session: Session) -> Finding:
    role = "admin"
    try:
        session.get("tokens")  # which only an admin may see; who may not is told what they are
    except ServerRefusedError as refusal:
        if "role" not in refusal.problem:
            return wrong("token", str(refusal), refusal.hint)
        role = str(refusal.problem["role"])
    except CommandError as error:
        return wrong("token", str(error), error.hint)
    return fine("token", f"The token is valid; its role is {role}.")


def _jumps(session: Session, figures: Mapping[str, float], now: datetime) -> Iterator[Finding]:
    check = "clock jumps"
    number = int(figures.get("forewarn_clock_jumps_total", 0))
    if not number:
        yield fine(check, "The server's clock has not jumped since it started.")
        return
    try:
        last = session.get("clock")["jumps"][-1]
    except CommandError:
        return  # which the finding about the token says
    at, seconds = datetime.fromisoformat(last["at"]), last["seconds"]
    sentence = (
        f"The server's clock jumped {'forward' if seconds > 0 else 'back'} by "
        f"{_say(timedelta(seconds=abs(seconds)))} at {at:%Y-%m-%d %H:%M:%S} UTC; "
        f"jumps since it started: {number}."
    )
    if now - at < RECENT_JUMP:
        yield doubtful(check, sentence, "try: timedatectl status, on the server")
    else:
        yield fine(check, sentence)


def _store(figures: Mapping[str, float]) -> Finding:
    check = "writes"
    if figures.get("forewarn_store_writable") != 1:
        hint = "see database_not_writable in the server's log"
        return wrong(check, "The server cannot write its database.", hint)
    return fine(check, "The server can write its database.")


def _lease(figures: Mapping[str, float], server: Row | None, now: datetime) -> Finding:
    check = "scheduler lease"
    replicas = server["replicas"] if server else ()
    leader = next((each for each in replicas if each["is_leader"]), None)
    if figures.get("forewarn_leader") == 1:
        epoch = int(figures.get("forewarn_lease_epoch", 0))
        # The only server takes the lease when it starts.
        since = figures.get("process_start_time_seconds") if len(replicas) <= 1 else None
        age = "" if since is None else f", for {_say(timedelta(seconds=now.timestamp() - since))}"
        return fine(check, f"The server holds the lease, epoch {epoch}{age}.")
    if server and leader and not leader["is_answering"]:
        where = f"{leader['name']} at {leader['address']}"
        return fine(check, f"Replica {where} holds the lease, epoch {server['lease_epoch']}.")
    if server is None and figures.get("forewarn_replicas", 0) > 1:
        sentence = "Another replica may hold the lease; only a valid token can tell."
        return doubtful(check, sentence, "set FOREWARN_TOKEN, then try: forewarn status")
    subject = "No replica holds" if len(replicas) > 1 else "The server does not hold"
    sentence = f"{subject} the lease, so no event starts or completes."
    return wrong(check, sentence, "see lease_lost in the server's log; try again in a few seconds")


def _replicas(figures: Mapping[str, float], server: Row | None) -> Iterator[Finding]:
    check = "replicas"
    if figures.get("forewarn_changes_followed") == 0:
        sentence = "The server does not receive changes from other replicas."
        yield wrong(check, sentence, "see changes_not_followed in the server's log")
    if server is None:
        return  # which the finding about the token says
    found = [
        *_silent(server),
        *_differences(server, lambda each: {"version": each["version"]}),
        *_differences(server, lambda each: each["settings"]),
        *_lags(server),
    ]
    yield from (doubtful(check, sentence, "try: forewarn status") for sentence in found)
    if not found:
        number, version = len(server["replicas"]), server["version"]
        sentence = f"Replicas: {number}, version {version}; none lags behind."
        yield fine(check, sentence)


def _silent(server: Row) -> Iterator[str]:
    now = datetime.fromisoformat(server["database_time"])
    for each in server["replicas"]:
        if not each["is_present"]:
            ago = _say(now - datetime.fromisoformat(each["seen_at"]))
            yield f"Replica {each['name']} at {each['address']} was last seen {ago} ago."


def _differences(server: Row, what: Callable[[Row], Mapping[str, str]]) -> Iterator[str]:
    present = [each for each in server["replicas"] if each["is_present"]]
    for name in sorted({name for each in present for name in what(each)}):
        values = {what(each)[name] for each in present if name in what(each)}
        if len(values) > 1:
            yield f"The replicas differ in {name}: {', '.join(sorted(values))}."


def _lags(server: Row) -> Iterator[str]:
    for each in server["replicas"]:
        lag = timedelta(milliseconds=each["lag_in_milliseconds"])
        if each["is_present"] and lag > LAGGING:
            behind = f"by {each['changes_behind']} changes and {_say(lag)}"
            yield f"Replica {each['name']} at {each['address']} lags behind {behind}."


def _show(session: Session) -> Row | None:
    try:
        found: Row = session.get("server")
    except CommandError:
        return None
    return found if "replicas" in found else None  # or it is an older release


def _loops(figures: Mapping[str, float]) -> Finding:
    died = {found[1]: int(n) for name, n in figures.items() if (found := _LOOP.match(name)) and n}
    if died:
        names = ", ".join(f"{name} ({number}x)" for name, number in died.items())
        hint = "see loop_failed in the server's log, and report the traceback as a bug"
        return doubtful("loops", f"Parts of the server failed and were restarted: {names}.", hint)
    return fine("loops", "No part of the server has failed since it started.")


def _pause(figures: Mapping[str, float]) -> Finding:
    if figures.get("forewarn_server_paused") == 1:
        sentence = "The server is paused: it serves polls, but starts nothing."
        return doubtful("pause", sentence, "try: forewarn resume")
    return fine("pause", "The server is not paused.")


def _executors(figures: Mapping[str, float], server: Row | None) -> Finding:
    if figures.get("forewarn_executors_usable") != 0:
        return fine("executors", "The server can use its executors.")
    problem = server["executor_problem"] if server else "The executor file is invalid."
    hint = "correct the file, then send the server SIGHUP or restart it"
    return wrong("executors", f"No impact starts: {problem}", hint)


def _discovery(session: Session, figures: Mapping[str, float]) -> Iterator[Finding]:
    check = "discovery"
    sources = {found[1]: n for name, n in figures.items() if (found := _SOURCE.match(name))}
    if not sources:
        return  # as most servers have none
    hint = "try: forewarn fleet sources"
    failed = [name for name, works in sources.items() if not works]
    for name in failed:
        yield doubtful(
            check, f"The fleet does not follow {name}. {_problem_of(session, name)}", hint
        )
    if not failed:
        yield fine(check, f"Sources that the fleet follows: {', '.join(sources)}.")


def _problem_of(session: Session, name: str) -> str:
    try:
        found = session.get("discovery")["sources"]
    except CommandError:
        return ""  # which the finding about the token says
    return next((str(each["problem"]) for each in found if each["name"] == name), "")


def _outbox(figures: Mapping[str, float]) -> Finding:
    check = "outbox"
    waiting, failed = (
        int(figures.get(f'forewarn_outbox_messages{{status="{status}"}}', 0))
        for status in ("waiting", "failed")
    )
    oldest = timedelta(seconds=figures.get("forewarn_outbox_oldest_seconds", 0))
    if waiting and oldest > SLOW_DELIVERY:
        sentence = f"Messages waiting: {waiting}, the oldest for {_say(oldest)}."
        return doubtful(check, sentence, "try: forewarn notification list --waiting")
    if failed:
        sentence = f"Failed messages: {failed}."
        return doubtful(check, sentence, "try: forewarn notification list --failed")
    return fine(check, f"Messages waiting: {waiting}.")


def _overdue(figures: Mapping[str, float]) -> Finding:
    overdue = int(figures.get("forewarn_events_overdue", 0))
    if overdue:
        sentence = f"Events that take longer than announced: {overdue}."
        return doubtful("overdue events", sentence, "try: forewarn event list --status Started")
    return fine("overdue events", "No event is overdue.")


def _maintenances(server: Row | None) -> Iterator[Finding]:
    check = "maintenances"
    if server is None:
        return  # which the finding about the token says
    stopped = [each for each in server["maintenances"] if each["status"] in NEEDS_OPERATOR]
    away = [each for each in server["maintenances"] if each["status"] == MaintenanceStatus.AWAY]
    for each in stopped:
        key = each["maintenance_id"]
        hint = f"try: forewarn maintenance explain {key}"
        yield wrong(check, f"Maintenance {key} is {each['status_text']}.", hint)
    for each in away:
        sentence = f"Maintenance {each['maintenance_id']} is {each['status_text']}."
        yield doubtful(check, sentence, "try: forewarn status")
    if not stopped and not away:
        yield fine(check, "No maintenance is held or stuck.")


def _found(server: Row | None) -> Iterator[Finding]:
    """Yield what the server itself finds."""
    for each in server["findings"] if server else ():
        yield Finding(**{**each, "verdict": FindingVerdict(each["verdict"])})


def _say(span: timedelta) -> str:
    return format_duration(timedelta(seconds=max(round(span.total_seconds()), 0)))
