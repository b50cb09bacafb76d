"""The fleet as people declare it: the same words in a TOML file and in JSON.

A declaration may leave out what the server decides (update domain, vm_id), and says nothing about
the rest of the fleet.
"""

import json
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from datetime import timedelta
from itertools import islice
from typing import Any, Final

from forewarn.domain.errors import InvalidError, says
from forewarn.domain.names import HostName, ScopeId, VmName
from forewarn.domain.policy import ApprovalPolicy, Policy
from forewarn.domain.profile import NO_PROFILE, PROFILE_KEYS, Profile, profile_mistakes
from forewarn.domain.topology import (
    FAULT_DOMAINS,
    UPDATE_DOMAINS,
    DeliveryScope,
    Host,
    ScopeKind,
    make_scope_id,
    resource_names,
)
from forewarn.files.declarations import SET_TABLES, VM_TEXTS
from forewarn.files.toml import NotTomlError, decode
from forewarn.protocol.errors import ForewarnError
from forewarn.protocol.vocabulary import role_of
from forewarn.wording.durations import DurationError, parse_duration

MOST_MISTAKES: Final = 100


@says("{problem}")
class FleetError(InvalidError):
    """A mistake in a declaration.

    *index* counts the entries of *table* from 0; *entry* is the name of the one that is wrong.
    """

    problem: str
    entry: str | None = None
    key: str | None = None
    table: str | None = None
    index: int | None = None


class FleetMistakesError(FleetError):
    """Several mistakes in one declaration, the first hundred if there are more."""

    def __init__(self, mistakes: Sequence[ForewarnError]) -> None:
        self.mistakes = tuple(mistakes[:MOST_MISTAKES])
        number = f"more than {MOST_MISTAKES}" if len(mistakes) > MOST_MISTAKES else len(mistakes)
        super().__init__(f"The fleet has {number} mistakes. {' '.join(map(str, self.mistakes))}")


@dataclass(frozen=True, slots=True, kw_only=True)
class DeclaredVirtualMachine:
    """A virtual machine with what its owner has said of it."""

    name: VmName
    kind: ScopeKind
    scope_name: str
    placement_group: str | None
    policy: Policy
    update_domain: int | None
    fault_domain: int | None
    host: HostName | None
    addresses: tuple[str, ...]
    vm_id: str
    zone: str
    location: str
    resource_group: str
    subscription_id: str
    tags: Mapping[str, str]
    labels: Mapping[str, str]
    profile: Profile
    scope_id: ScopeId


@dataclass(frozen=True, slots=True, kw_only=True)
class Fleet:
    """Everything one declaration names. With *mistakes*, it cannot be applied."""

    scopes: tuple[DeliveryScope, ...] = ()
    virtual_machines: tuple[DeclaredVirtualMachine, ...] = ()
    hosts: tuple[Host, ...] = ()
    mistakes: tuple[FleetError, ...] = ()


_POLICY_KEYS: Final = {
    "approval": str,
    "postpone_until": str,
    "auto_approve_user": bool,
    "terminate_notice": str,
    "notice": str,
}
_USUAL_POLICY: Final = Policy()
_SET_KEYS: Final = {"name": str, "update_domains": int, "fault_domains": int, **_POLICY_KEYS}
_MEMBERSHIPS: Final = {table: kind for kind, table in SET_TABLES.items()}
_VM_KEYS: Final = {
    "name": str,
    **dict.fromkeys(_MEMBERSHIPS, str),
    "placement_group": str,
    "update_domain": int,
    "fault_domain": int,
    "host": str,
    "role": str,
    "addresses": list,
    **dict.fromkeys(VM_TEXTS, str),
    "tags": dict,
    "labels": dict,
    "profile": dict,
    **_POLICY_KEYS,
}
_HOST_KEYS: Final = {"name": str, "labels": dict}
TABLES: Final[Mapping[str, Mapping[str, type]]] = {
    **dict.fromkeys(_MEMBERSHIPS, _SET_KEYS),
    "virtual_machine": _VM_KEYS,
    "host": _HOST_KEYS,
}
"""Every table a declaration may have, with its keys and their types."""
_TYPE_NOUNS: Final[Mapping[type, str]] = {
    str: "a string",
    int: "an integer",
    bool: "true or false",
    list: "a list",
    dict: "a table",
}


def read_fleet_file(text: str) -> Fleet:
    """Return the fleet a TOML file declares, or refuse with everything that is wrong in it."""
    try:
        content = decode(text)
    except NotTomlError as error:
        raise FleetError(str(error)) from error
    return read_fleet(content)


def read_fleet(content: Mapping[str, Any]) -> Fleet:
    """Return the fleet *content* declares, or refuse with everything that is wrong in it."""
    fleet = examine_fleet(content)
    refuse_mistakes(fleet.mistakes)
    return fleet


def examine_fleet(content: Mapping[str, Any]) -> Fleet:
    """Return what can be read of *content*, with all mistakes in it."""
    mistakes = [
        FleetError(f"{table!r} is not one of {', '.join(TABLES)}.", table=table)
        for table in content
        if table not in TABLES
    ]
    return Fleet(
        scopes=tuple(
            _read_scope(kind, entry)
            for table, kind in _MEMBERSHIPS.items()
            for entry in _entries(content, table, mistakes)
        ),
        virtual_machines=tuple(map(_read_vm, _entries(content, "virtual_machine", mistakes))),
        hosts=tuple(
            Host(name=HostName(entry.name), labels=_texts(entry, "labels"))
            for entry in _entries(content, "host", mistakes)
        ),
        mistakes=tuple(mistakes),
    )


def refuse_mistakes(mistakes: Iterable[ForewarnError]) -> None:
    """Refuse a declaration with all its *mistakes*, if there are any."""
    found = list(islice(mistakes, MOST_MISTAKES + 1))
    if len(found) == 1:
        raise found[0]
    if found:
        raise FleetMistakesError(found)


def write_fleet_file(content: Mapping[str, Any]) -> str:
    """Return the TOML file that declares *content*, which `read_fleet` takes."""
    return "\n".join(
        f"[[{table}]]\n" + "".join(f"{key} = {_toml(value)}\n" for key, value in entry.items())
        for table, entries in content.items()
        for entry in entries
    )


def _toml(value: object) -> str:
    if isinstance(value, dict):
        pairs = (f"{_toml(key)} = {_toml(each)}" for key, each in value.items())
        return f"{{ {', '.join(pairs)} }}"
    # Numbers, truth, text and lists of it are written as in JSON, except one character.
    return json.dumps(value, ensure_ascii=False).replace("\x7f", "\\u007f")


@dataclass(frozen=True, slots=True)
class _Entry:
    """One entry of a table; what is wrong with it is put on the list of mistakes."""

    table: str
    index: int
    name: str
    values: Mapping[str, Any]
    mistakes: list[FleetError]

    def blame(self, problem: str, key: str) -> None:
        mistake = FleetError(problem, self.name, key, table=self.table, index=self.index)
        self.mistakes.append(mistake)


def _entries(
    content: Mapping[str, Any], table: str, mistakes: list[FleetError]
) -> Iterator[_Entry]:
    entries = content.get(table, [])
    if not isinstance(entries, list):
        problem = f"{table!r} must be a list; in TOML write [[{table}]]."
        mistakes.append(FleetError(problem, table=table))
        return
    for index, values in enumerate(entries):
        name = values.get("name") if isinstance(values, dict) else None
        if isinstance(name, str):
            yield _without_wrong_keys(_Entry(table, index, name, values, mistakes))
        else:
            noun = table.replace("_", " ")
            mistakes.append(FleetError(f"This {noun} has no name.", table=table, index=index))


def _without_wrong_keys(entry: _Entry) -> _Entry:
    wrong = set()
    for key, value in entry.values.items():
        wanted = TABLES[entry.table].get(key)
        if wanted is None:
            entry.blame(f"{entry.name} has the unknown key {key!r}.", key)
        # bool is an int to Python, but not to people.
        elif not isinstance(value, wanted) or (wanted is int and isinstance(value, bool)):
            problem = f"{key} of {entry.name} must be {_TYPE_NOUNS[wanted]}, not {value!r}."
            entry.blame(problem, key)
        else:
            continue
        wrong.add(key)
    if not wrong:
        return entry
    right = {key: value for key, value in entry.values.items() if key not in wrong}
    return replace(entry, values=right)


def _read_scope(kind: ScopeKind, entry: _Entry) -> DeliveryScope:
    return DeliveryScope(
        kind=kind,
        name=entry.name,
        update_domains=entry.values.get("update_domains", UPDATE_DOMAINS),
        fault_domains=entry.values.get("fault_domains", FAULT_DOMAINS),
        policy=_read_policy(entry),
    )


def _read_vm(entry: _Entry) -> DeclaredVirtualMachine:
    values = entry.values
    kind, scope_name = _membership(entry)
    host, role = values.get("host"), values.get("role")
    group = values.get("placement_group") if kind is ScopeKind.SCALE_SET else None
    scope_id = make_scope_id(kind, scope_name, group)
    (instance,) = resource_names((VmName(entry.name),), scope_id)
    if role is not None and role_of(instance) != role:
        entry.blame(f"{entry.name} has the role {role!r}, so call it {role}_IN_NUMBER.", "role")
    return DeclaredVirtualMachine(
        name=VmName(entry.name),
        kind=kind,
        scope_name=scope_name,
        placement_group=group,
        policy=_read_policy(entry) if kind is ScopeKind.VIRTUAL_MACHINE else _USUAL_POLICY,
        update_domain=values.get("update_domain"),
        fault_domain=values.get("fault_domain"),
        host=None if host is None else HostName(host),
        addresses=_addresses(entry),
        **{key: values.get(key, "") for key in VM_TEXTS},
        tags=_texts(entry, "tags"),
        labels=_texts(entry, "labels"),
        profile=_read_profile(entry),
        scope_id=scope_id,
    )


def _read_profile(entry: _Entry) -> Profile:
    texts = _texts(entry, "profile")
    if not texts:
        return NO_PROFILE
    for key in texts:
        if key not in PROFILE_KEYS:
            known = ", ".join(PROFILE_KEYS)
            entry.blame(f"profile of {entry.name}: {key!r} is not one of {known}.", "profile")
    profile = Profile(**{key: text for key, text in texts.items() if key in PROFILE_KEYS})
    for mistake in profile_mistakes(profile):
        entry.blame(f"profile of {entry.name}: {mistake}.", "profile")
    return profile


def _membership(entry: _Entry) -> tuple[ScopeKind, str]:
    name, values = entry.name, entry.values
    given = [key for key in _MEMBERSHIPS if key in values]
    if len(given) > 1:
        entry.blame(f"{name} can only be in one of {' and '.join(given)}.", given[1])
    if "placement_group" in values and "scale_set" not in given:
        entry.blame(f"{name} has a placement_group but is in no scale set.", "placement_group")
    if not given:
        return ScopeKind.VIRTUAL_MACHINE, name
    for key in _POLICY_KEYS:
        if key in values:
            entry.blame(f"{key} belongs to {values[given[0]]}, not to {name} in it.", key)
    return _MEMBERSHIPS[given[0]], values[given[0]]


def _read_policy(entry: _Entry) -> Policy:
    values = entry.values
    if _POLICY_KEYS.keys().isdisjoint(values):
        return _USUAL_POLICY
    approval = values.get("approval", ApprovalPolicy.ANY)
    if approval not in set(ApprovalPolicy):
        problem = f"approval of {entry.name} must be one of {', '.join(ApprovalPolicy)}."
        entry.blame(problem, "approval")
        approval = ApprovalPolicy.ANY
    return Policy(
        approval=ApprovalPolicy(approval),
        postpone_until=_duration(entry, "postpone_until") or timedelta(0),
        auto_approve_user=values.get("auto_approve_user", False),
        terminate_notice=_duration(entry, "terminate_notice"),
        notice=_duration(entry, "notice"),
    )


def _duration(entry: _Entry, key: str) -> timedelta | None:
    if key not in entry.values:
        return None
    try:
        return parse_duration(entry.values[key])
    except DurationError as error:
        entry.blame(f"{key} of {entry.name}: {error}", key)
        return None


def _addresses(entry: _Entry) -> tuple[str, ...]:
    addresses = entry.values.get("addresses", [])
    if not all(isinstance(address, str) for address in addresses):
        entry.blame(f"addresses of {entry.name} must be a list of strings.", "addresses")
        return ()
    return tuple(addresses)


def _texts(entry: _Entry, key: str) -> dict[str, str]:
    if key not in entry.values:
        return {}
    texts: Mapping[str, object] = entry.values[key]
    if not all(isinstance(text, str) for text in texts.values()):
        entry.blame(f"{key} of {entry.name} must have strings as values.", key)
    return {name: str(text) for name, text in texts.items()}
