"""The fleet as people declare it: the same words in a TOML file and in JSON.

A declaration may leave out what the server decides (update domain, vm_id), and says nothing about
the rest of the fleet.
"""

import json
import re
import tomllib
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from datetime import timedelta
from typing import Any, Final

from forewarn.domain.names import HostName, ScopeId, VmName
from forewarn.domain.policy import ApprovalPolicy, Policy
from forewarn.domain.topology import (
    FAULT_DOMAINS,
    UPDATE_DOMAINS,
    DeliveryScope,
    Host,
    ScopeKind,
    make_scope_id,
)
from forewarn.operations.durations import DurationError, parse_duration
from forewarn.protocol.errors import ForewarnError
from forewarn.protocol.vocabulary import role_of


class FleetError(ForewarnError):
    """A declaration that cannot be read. *entry* names the thing it is about, if it has a name."""

    def __init__(self, problem: str, entry: str | None = None, key: str | None = None) -> None:
        super().__init__(problem)
        self.entry = entry
        self.key = key


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
    scope_id: ScopeId


@dataclass(frozen=True, slots=True, kw_only=True)
class Fleet:
    """Everything one declaration names."""

    scopes: tuple[DeliveryScope, ...] = ()
    virtual_machines: tuple[DeclaredVirtualMachine, ...] = ()
    hosts: tuple[Host, ...] = ()


_POLICY_KEYS: Final = {
    "approval": str,
    "postpone_until": str,
    "auto_approve_user": bool,
    "terminate_notice": str,
    "notice": str,
}
_USUAL_POLICY: Final = Policy()
_SET_KEYS: Final = {"name": str, "update_domains": int, "fault_domains": int, **_POLICY_KEYS}
_MEMBERSHIPS: Final = {
    "availability_set": ScopeKind.AVAILABILITY_SET,
    "cloud_service": ScopeKind.CLOUD_SERVICE,
    "scale_set": ScopeKind.SCALE_SET,
}
_VM_KEYS: Final = {
    "name": str,
    **dict.fromkeys(_MEMBERSHIPS, str),
    "placement_group": str,
    "update_domain": int,
    "fault_domain": int,
    "host": str,
    "role": str,
    "addresses": list,
    "vm_id": str,
    "zone": str,
    "location": str,
    "resource_group": str,
    "subscription_id": str,
    "tags": dict,
    "labels": dict,
    **_POLICY_KEYS,
}
_HOST_KEYS: Final = {"name": str, "labels": dict}
TABLES: Final[Mapping[str, Mapping[str, type]]] = {
    **dict.fromkeys(_MEMBERSHIPS, _SET_KEYS),
    "virtual_machine": _VM_KEYS,
    "host": _HOST_KEYS,
}
"""Every table a declaration may have, with its keys and their types."""


def read_fleet_file(text: str) -> Fleet:
    """Return the fleet a TOML file declares, or refuse with the line that is wrong."""
    try:
        content = tomllib.loads(text)
    except tomllib.TOMLDecodeError as error:
        raise FleetError(f"The file is not TOML: {error}.") from error
    return read_fleet(content)


def read_fleet(content: Mapping[str, Any]) -> Fleet:
    """Return the fleet *content* declares, or refuse with what is wrong in it."""
    for table in content:
        if table not in TABLES:
            raise FleetError(f"{table!r} is not one of {', '.join(TABLES)}.")
    return Fleet(
        scopes=tuple(
            _read_scope(kind, entry)
            for table, kind in _MEMBERSHIPS.items()
            for entry in _entries(content, table)
        ),
        virtual_machines=tuple(map(_read_vm, _entries(content, "virtual_machine"))),
        hosts=tuple(
            Host(name=HostName(entry["name"]), labels=_texts(entry, "labels"))
            for entry in _entries(content, "host")
        ),
    )


def write_fleet_file(content: Mapping[str, Any]) -> str:
    """Return the TOML file that declares *content*, which `read_fleet` takes."""
    return "\n".join(
        f"[[{table}]]\n" + "".join(f"{key} = {_toml(value)}\n" for key, value in entry.items())
        for table, entries in content.items()
        for entry in entries
    )


def line_of(text: str, entry: str | None, key: str | None = None) -> int | None:
    """Return the line of a fleet file that declares *entry*, or *key* within it."""
    if entry is None:
        return None
    name = re.compile(rf"""\s*name\s*=\s*["']{re.escape(entry)}["']""", re.IGNORECASE)
    wanted = re.compile(rf"\s*{re.escape(key)}\s*=") if key else name
    lines = text.splitlines()
    for number, line in enumerate(lines, 1):
        if name.match(line):
            table = _table_around(lines, number)
            return next((i for i in table if wanted.match(lines[i - 1])), number)
    return None


def _toml(value: object) -> str:
    if isinstance(value, dict):
        pairs = (f"{_toml(key)} = {_toml(each)}" for key, each in value.items())
        return f"{{ {', '.join(pairs)} }}"
    # Numbers, truth, text and lists of it are written as in JSON, except one character.
    return json.dumps(value, ensure_ascii=False).replace("\x7f", "\\u007f")


def _table_around(lines: list[str], number: int) -> range:
    first, last = number, number
    while first > 1 and not lines[first - 1].lstrip().startswith("[["):
        first -= 1
    while last < len(lines) and not lines[last].lstrip().startswith("[["):
        last += 1
    return range(first, last + 1)


def _entries(content: Mapping[str, Any], table: str) -> Iterator[Mapping[str, Any]]:
    entries = content.get(table, [])
    if not isinstance(entries, list):
        raise FleetError(f"{table!r} must be a list; in TOML write [[{table}]].")
    for entry in entries:
        _check_entry(table, entry)
        yield entry


def _check_entry(table: str, entry: object) -> None:
    if not isinstance(entry, dict) or not isinstance(entry.get("name"), str):
        raise FleetError(f"A {table} has no name.")
    name, keys = entry["name"], TABLES[table]
    for key, value in entry.items():
        if key not in keys:
            raise FleetError(f"{name} has the unknown key {key!r}.", name, key)
        # bool is an int to Python, but not to people.
        if not isinstance(value, keys[key]) or (keys[key] is int and isinstance(value, bool)):
            problem = f"{key} of {name} must be of type {keys[key].__name__}, not {value!r}."
            raise FleetError(problem, name, key)


def _read_scope(kind: ScopeKind, entry: Mapping[str, Any]) -> DeliveryScope:
    return DeliveryScope(
        kind=kind,
        name=entry["name"],
        update_domains=entry.get("update_domains", UPDATE_DOMAINS),
        fault_domains=entry.get("fault_domains", FAULT_DOMAINS),
        policy=_read_policy(entry),
    )


def _read_vm(entry: Mapping[str, Any]) -> DeclaredVirtualMachine:
    name = entry["name"]
    kind, scope_name = _membership(entry)
    host = entry.get("host")
    role = entry.get("role")
    if role is not None and role_of(name) != role:
        raise FleetError(
            f"{name} has the role {role!r}, so call it {role}_IN_NUMBER.", name, "role"
        )
    group = entry.get("placement_group")
    return DeclaredVirtualMachine(
        name=VmName(name),
        kind=kind,
        scope_name=scope_name,
        placement_group=group,
        policy=_read_policy(entry),
        update_domain=entry.get("update_domain"),
        fault_domain=entry.get("fault_domain"),
        host=None if host is None else HostName(host),
        addresses=_addresses(entry),
        vm_id=entry.get("vm_id", ""),
        zone=entry.get("zone", ""),
        location=entry.get("location", ""),
        resource_group=entry.get("resource_group", ""),
        subscription_id=entry.get("subscription_id", ""),
        tags=_texts(entry, "tags"),
        labels=_texts(entry, "labels"),
        scope_id=make_scope_id(kind, scope_name, group),
    )


def _membership(entry: Mapping[str, Any]) -> tuple[ScopeKind, str]:
    name = entry["name"]
    given = [key for key in _MEMBERSHIPS if key in entry]
    if len(given) > 1:
        raise FleetError(f"{name} can only be in one of {' and '.join(given)}.", name, given[1])
    if "placement_group" in entry and given != ["scale_set"]:
        problem = f"{name} has a placement_group but is in no scale set."
        raise FleetError(problem, name, "placement_group")
    if not given:
        return ScopeKind.VIRTUAL_MACHINE, name
    for key in _POLICY_KEYS:
        if key in entry:
            problem = f"{key} belongs to {entry[given[0]]}, not to {name} in it."
            raise FleetError(problem, name, key)
    return _MEMBERSHIPS[given[0]], entry[given[0]]


def _read_policy(entry: Mapping[str, Any]) -> Policy:
    if _POLICY_KEYS.keys().isdisjoint(entry):
        return _USUAL_POLICY
    name = entry["name"]
    approval = entry.get("approval", ApprovalPolicy.ANY)
    if approval not in set(ApprovalPolicy):
        problem = f"approval of {name} must be one of {', '.join(ApprovalPolicy)}."
        raise FleetError(problem, name, "approval")
    return Policy(
        approval=ApprovalPolicy(approval),
        postpone_until=_duration(entry, "postpone_until") or timedelta(0),
        auto_approve_user=entry.get("auto_approve_user", False),
        terminate_notice=_duration(entry, "terminate_notice"),
        notice=_duration(entry, "notice"),
    )


def _duration(entry: Mapping[str, Any], key: str) -> timedelta | None:
    if key not in entry:
        return None
    try:
        return parse_duration(entry[key])
    except DurationError as error:
        raise FleetError(f"{key} of {entry['name']}: {error}", entry["name"], key) from error


def _addresses(entry: Mapping[str, Any]) -> tuple[str, ...]:
    addresses = entry.get("addresses", [])
    if not all(isinstance(address, str) for address in addresses):
        name = entry["name"]
        raise FleetError(f"addresses of {name} must be a list of strings.", name, "addresses")
    return tuple(addresses)


def _texts(entry: Mapping[str, Any], key: str) -> dict[str, str]:
    if key not in entry:
        return {}
    texts: Mapping[str, object] = entry[key]
    if not all(isinstance(text, str) for text in texts.values()):
        name = entry["name"]
        raise FleetError(f"{key} of {name} must have strings as values.", name, key)
    return {name: str(text) for name, text in texts.items()}
