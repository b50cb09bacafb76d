"""A Maintenance in one line for each host, or scope. Where many say the same, one line says it."""

from collections.abc import Callable, Hashable, Iterable, Iterator, Mapping, Sequence
from enum import StrEnum
from typing import Annotated, Final

from forewarn.cli.options import switch
from forewarn.cli.output import Columns, Row, time_of
from forewarn.domain.phrases import count_of, say_names, say_ranges
from forewarn.domain.standing import ATTENTION, NOT_DONE, MaintenanceStatus, Standing

_MOST_LINES: Final = 20
"""More are folded, so that sixty hosts fit on a screen."""
_HEAD: Final = 5
"""How many lines at the beginning of a plan are never folded."""
_FEWEST: Final = 3
"""So many lines that say the same become one."""


class Detail(StrEnum):
    """What has a line of its own."""

    PLACE = "place"
    VM = "vm"


By = Annotated[Detail, switch("One line per host or scope, or full detail.", "--by")]


def status_lines(maintenance: Row) -> tuple[Columns, list[Row]]:
    """Return where *maintenance* is with each place, what needs attention first."""
    noun = _noun(maintenance["hosts"])
    columns: Columns = {
        noun: "place",
        "state": "said",
        "vms": "vms",
        "approved": "approved",
        "waits for": "waits",
    }
    return columns, _fold(_status_lines(maintenance), noun, _status_key)


def changed_lines(maintenance: Row, told: dict[str, str]) -> list[Row]:
    """Return the lines of places that stand otherwise than *told*, and remember them there.

    What a place waits for changes with every other place, and is no change of its own.
    """
    changed = []
    for line in _status_lines(maintenance):
        said = f"{line['said']} {line['approved']}"
        if told.get(line["place"]) != said:
            told[line["place"]] = said
            changed.append(line)
    return _fold(changed, _noun(maintenance["hosts"]), _status_key, most=0)


def plan_lines(plan: Row) -> tuple[Columns, list[Row]]:
    """Return when each place has its turn, in the order of the walk."""
    is_by_host = plan["exposure"]["is_by_host"]
    noun = _noun(is_by_host)
    steps: dict[str, list[Row]] = {}
    for step in plan["steps"]:
        steps.setdefault(_place(step), []).append(step)
    lines = [_plan_line(place, found) for place, found in steps.items()]
    if len(lines) > _MOST_LINES:
        head, rest = lines[:_HEAD], lines[_HEAD:]
        lines = head + _fold(rest, noun, lambda line: (line["never"], line["left"]), most=0)
    columns: Columns = {
        noun: "place",
        "steps": "steps",
        "vms": "vms",
        "begins": lambda line: time_of(line["begins"]),
        "ends": lambda line: time_of(line["ends"]),
        "latest end": lambda line: time_of(line["latest"]),
        "min available": "left",
    }
    return columns, lines


def describe_brake(brake: Row, about: str = "") -> str:
    """Return what holds a step, in short."""
    until = time_of(brake["until"])
    said = (brake["kind"], brake["gate"] or about, f"until {until}" if until else "")
    return " ".join(filter(None, said))


def say_places(maintenance: Row) -> str:
    """Say how many hosts, or scopes, have which standing."""
    places: Mapping[str, int] = maintenance["places"]
    total = count_of(sum(places.values()), _noun(maintenance["hosts"]))
    if len(places) == 1:
        return " ".join((total, *places))
    said = ", ".join(f"{number} {standing}" for standing, number in places.items())
    return f"{total} ({said})" if places else ""


def say_not_done(standings: Mapping[str, str]) -> Iterator[str]:
    """Say which places are left undone for good, if any."""
    found = [f"{place} ({said})" for place, said in standings.items() if said in NOT_DONE]
    if found:
        yield f"Not done: {say_names(found)}."


def _noun(is_by_host: object) -> str:
    return "host" if is_by_host else "scope"


def _place(step: Row) -> str:
    place: str = step["host"] or step["shares"][0]["scope_id"]
    return place


def _places(maintenance: Row) -> Iterable[str]:
    return dict.fromkeys([*maintenance["standings"], *map(_place, maintenance["remaining"])])


def _status_lines(maintenance: Row) -> list[Row]:
    at: dict[str, dict[str, list[Row]]] = {
        part: {place: [] for place in _places(maintenance)} for part in _PLACES_OF
    }
    for part, places_of in _PLACES_OF.items():
        for row in maintenance[part]:
            for place in at[part].keys() & places_of(row):
                at[part][place].append(row)
    lines = (
        _status_line({**maintenance, **{part: at[part][place] for part in at}}, place)
        for place in _places(maintenance)
    )
    return sorted(lines, key=lambda line: ATTENTION.index(line["standing"]))


_PLACES_OF: Final[Mapping[str, Callable[[Row], set[str]]]] = {
    "events": lambda event: {event["host"], event["scope_id"]},
    "remaining": lambda step: {_place(step)},
    "left_out": lambda step: {_place(step)},
    "operations": lambda operation: {operation["host"]},
    "failures": lambda failure: {failure["place"]},
}
"""Where each part of a Maintenance is: going through all of it for each place takes too long."""


def _status_key(line: Row) -> Hashable:
    return line["said"], line["approved"], line["waits"]


def _status_line(maintenance: Row, place: str) -> Row:
    """Return the line of *place*, of a *maintenance* that has nothing elsewhere."""
    standing = Standing(maintenance["standings"].get(place, Standing.WAITING))
    events, steps = maintenance["events"], maintenance["remaining"]
    shares = [share for step in (*steps, *maintenance["left_out"]) for share in step["shares"]]
    in_flight = [
        event
        for event in events
        if event["ended_at"] is None and not _is_withdrawn(maintenance, event)
    ]
    approved = sum(bool(event["approvals"]) for event in in_flight)
    return {
        "place": place,
        "standing": standing,
        "said": _say_standing(maintenance, standing, is_in_flight=bool(in_flight)),
        "vms": len({vm for part in (*events, *shares) for vm in part["resources"]}),
        "approved": f"{approved}/{len(in_flight)}" if in_flight else "",
        "waits": ", ".join(dict.fromkeys(_waits(maintenance, in_flight, steps[:1]))),
    }


def _say_standing(maintenance: Row, standing: Standing, *, is_in_flight: bool) -> str:
    if standing is not Standing.UNDER_WAY:
        return str(standing)
    if maintenance["status"] == MaintenanceStatus.ABORTING and not is_in_flight:
        return "being withdrawn"
    phase = _phase(maintenance)
    return f"{standing} ({phase})" if phase else str(standing)


def _phase(maintenance: Row) -> str:
    return next((operation["phase"] for operation in reversed(maintenance["operations"])), "")


def _is_withdrawn(maintenance: Row, event: Row) -> bool:
    # The server cancels it a moment after it has answered.
    return maintenance["status"] == MaintenanceStatus.ABORTING and event["started_at"] is None


_RUNNING: Final[Mapping[str, str]] = {
    "work": "work",
    "verify": "verify",
    "return": "return",
    "over": "running task",
}
"""What the events of a host that have started wait for, in each phase after the impacts."""


def _waits(maintenance: Row, in_flight: Sequence[Row], next_steps: Sequence[Row]) -> Iterator[str]:
    for failure in maintenance["failures"]:
        reason = f": {failure['reason']}" if failure["reason"] else ""
        yield f"retry or skip ({failure['ending']}{reason})"
    dues = [event["not_before"] for event in in_flight if event["started_at"] is None]
    if dues:
        yield f"approval until {time_of(max(dues))}"
    elif in_flight:
        yield _RUNNING.get(_phase(maintenance), "impact")
    else:
        for step in next_steps:
            yield from map(describe_brake, step["brakes"])


def _plan_line(place: str, steps: Sequence[Row]) -> Row:
    shares = [share for step in steps for share in step["shares"]]
    sets = [share for share in shares if share["members"] > 1]
    left = [share["available"] * 100 // share["members"] for share in sets]
    never = any(step["earliest"] is None for step in steps)
    return {
        "place": place,
        "steps": len(steps),
        "vms": len({vm for share in shares for vm in share["resources"]}),
        "begins": _ends_of(steps[:1], "earliest", "begins"),
        "ends": _ends_of(steps, "earliest", "ends"),
        "latest": _ends_of(steps, "latest", "ends"),
        "left": f"{min(left)} %" if left else "",
        "never": never,
    }


def _ends_of(steps: Sequence[Row], pace: str, moment: str) -> str | None:
    return _latest(step[pace][moment] if step[pace] else None for step in steps)


def _fold(
    lines: Sequence[Row],
    noun: str,
    key: Callable[[Row], Hashable],
    most: int = _MOST_LINES,
) -> list[Row]:
    if len(lines) <= most:
        return list(lines)
    # Those that say the same stand together, in the order in which the first of them came.
    alike: dict[Hashable, list[Row]] = {}
    for line in lines:
        alike.setdefault(key(line), []).append(line)
    folded: list[Row] = []
    for same in alike.values():
        folded += same if len(same) < _FEWEST else [_folded(same, noun)]
    return folded


def _folded(lines: Sequence[Row], noun: str) -> Row:
    places = [line["place"] for line in lines]
    return {
        **lines[0],
        "ends": _latest(line.get("ends") for line in lines),
        "latest": _latest(line.get("latest") for line in lines),
        "place": f"{say_ranges(places)} ({count_of(len(places), noun)})",
        "steps": sum(line.get("steps", 0) for line in lines),
        "vms": sum(line["vms"] for line in lines),
    }


def _latest(moments: Iterable[str | None]) -> str | None:
    given = list(moments)
    known = [each for each in given if each is not None]
    return max(known) if len(known) == len(given) else None
