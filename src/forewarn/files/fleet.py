"""The fleet as people declare it: the same words in a TOML file and in JSON.

The keys of an entry are the fields of the domain, and so are their defaults. A declaration may
leave out what the server decides (update domain, vm_id), and says nothing about the rest of the
fleet.
"""

from collections.abc import Container, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, fields
from datetime import timedelta
from functools import lru_cache
from itertools import islice
from types import NoneType
from typing import Annotated, Any, Final, TypeAlias, get_args

from pydantic import AfterValidator, StrictBool, StrictInt, StrictStr

from forewarn.domain.errors import InvalidError, says
from forewarn.domain.policy import Policy
from forewarn.domain.profile import PROFILE_KEYS, Profile, profile_mistakes
from forewarn.domain.topology import DeliveryScope, Host, ScopeKind, VirtualMachine, standalone
from forewarn.files.declarations import SET_TABLES, USUAL_POLICY
from forewarn.files.tables import MOST_MISTAKES, Mistake, duration, entry_reader, examine
from forewarn.files.toml import NotTomlError, decode, encode_table
from forewarn.protocol.errors import ForewarnError

KeyTypes: TypeAlias = Mapping[str, Any]
"""The keys that an entry may have, with their types in the domain."""


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
    """A virtual machine as its owner declares it, with its scope and the domains it asks for."""

    vm: VirtualMachine
    scope: DeliveryScope
    update_domain: int | None
    fault_domain: int | None


@dataclass(frozen=True, slots=True, kw_only=True)
class Fleet:
    """Everything one declaration names. With *mistakes*, it cannot be applied."""

    scopes: tuple[DeliveryScope, ...] = ()
    virtual_machines: tuple[DeclaredVirtualMachine, ...] = ()
    hosts: tuple[Host, ...] = ()
    mistakes: tuple[FleetError, ...] = ()


def _keys_of(kind: type, *without: str) -> dict[str, Any]:
    keys = {}
    for field in fields(kind):
        choices = get_args(field.type)
        # Nobody writes None: what has no value is left out.
        keys[field.name] = choices[0] if NoneType in choices else field.type
    return {key: found for key, found in keys.items() if key not in without}


_MEMBERSHIPS: Final = {table: kind for kind, table in SET_TABLES.items()}
_SCOPE_KEYS: Final = _keys_of(DeliveryScope, "kind", "placement_group", "policy")
_OWN_KEYS: Final = _keys_of(VirtualMachine, "scope_id")
POLICY_KEYS: Final = _keys_of(Policy)
_PLACE: Final = (*_MEMBERSHIPS, "placement_group", "update_domain", "fault_domain", "host", "role")
VM_KEYS: Final[KeyTypes] = POLICY_KEYS | dict.fromkeys(_PLACE, str) | _OWN_KEYS
TABLES: Final[Mapping[str, KeyTypes]] = {
    **dict.fromkeys(_MEMBERSHIPS, _SCOPE_KEYS | POLICY_KEYS),
    "virtual_machine": VM_KEYS,
    "host": _keys_of(Host, "closure"),
}
"""Every table a declaration may have, with its keys."""


def _read_profile(texts: Mapping[str, str]) -> Profile:
    profile = Profile(**_pick(texts, PROFILE_KEYS))
    mistakes = [*profile_mistakes(profile)]
    if unknown := [f"unknown key {key!r}" for key in texts if key not in PROFILE_KEYS]:
        mistakes.append(f"{', '.join(unknown)}; known keys: {', '.join(PROFILE_KEYS)}")
    if mistakes:
        raise ValueError(", and ".join(mistakes))
    return profile


_READ: Final[Mapping[Any, Any]] = {
    int: StrictInt,
    bool: StrictBool,
    timedelta: Annotated[StrictStr, AfterValidator(duration(shortest=timedelta(0)).func)],
    Profile: Annotated[dict[str, str], AfterValidator(_read_profile)],
}
"""How the types of the domain are read, where they are not written as they are."""
_READERS: Final = {
    table: entry_reader({key: _READ.get(kind, kind) for key, kind in keys.items()}, "name")
    for table, keys in TABLES.items()
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


def standalone_vms(*names: str) -> dict[str, list[dict[str, str]]]:
    """Return the content of a fleet file with nothing but virtual machines of these *names*."""
    return {"virtual_machine": [{"name": name} for name in names]}


def examine_fleet(content: Mapping[str, Any]) -> Fleet:
    """Return what can be read of *content*, with all mistakes in it."""
    mistakes: list[Mistake] = []
    scopes, vms, hosts = [], [], []
    for table, number, given in examine(content, _READERS, mistakes):
        if table == "host":
            hosts.append(Host(**given))
        elif table == "virtual_machine":
            vms.append(_read_vm(given))
            mistakes += (
                Mistake(problem, key, table, number, entry=given["name"])
                for key, problem in _vm_mistakes(given, vms[-1].vm)
            )
        else:
            kind, policy = _MEMBERSHIPS[table], _read_policy(given)
            scopes.append(DeliveryScope(kind=kind, policy=policy, **_pick(given, _SCOPE_KEYS)))
    return Fleet(
        scopes=tuple(scopes),
        virtual_machines=tuple(vms),
        hosts=tuple(hosts),
        mistakes=tuple(map(_fleet_error, mistakes)),
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
        encode_table(table, entry) for table, entries in content.items() for entry in entries
    )


def _fleet_error(mistake: Mistake) -> FleetError:
    if not mistake.table:
        return FleetError(str(mistake), table=mistake.key)
    return FleetError(
        str(mistake),
        mistake.entry or None,
        mistake.key or None,
        table=mistake.table,
        index=mistake.number,
    )


def _read_vm(given: Mapping[str, Any]) -> DeclaredVirtualMachine:
    table = next((table for table in _MEMBERSHIPS if table in given), None)
    if table is None:
        scope = standalone(given["name"], _read_policy(given))
    else:
        kind = _MEMBERSHIPS[table]
        group = given.get("placement_group") if kind is ScopeKind.SCALE_SET else None
        scope = _scope_of(kind, given[table], group)
    return DeclaredVirtualMachine(
        vm=VirtualMachine(scope_id=scope.scope_id, **_pick(given, _OWN_KEYS)),
        scope=scope,
        update_domain=given.get("update_domain"),
        fault_domain=given.get("fault_domain"),
    )


def _read_policy(given: Mapping[str, Any]) -> Policy:
    settings = _pick(given, POLICY_KEYS)
    return Policy(**settings) if settings else USUAL_POLICY


@lru_cache(maxsize=128)
def _scope_of(kind: ScopeKind, name: str, group: str | None) -> DeliveryScope:
    """Return the scope as its virtual machines know it; those of one are often side by side."""
    return DeliveryScope(kind=kind, name=name, placement_group=group)


def _pick(given: Mapping[str, Any], keys: Container[str]) -> dict[str, Any]:
    """Return what is *given* of *keys*; the domain has defaults for the others."""
    return {key: value for key, value in given.items() if key in keys}


def _vm_mistakes(given: Mapping[str, Any], vm: VirtualMachine) -> Iterator[tuple[str, str]]:
    """Yield the keys that do not go with the others, and why."""
    sets = [table for table in _MEMBERSHIPS if table in given]
    if len(sets) > 1:
        yield sets[1], f"a virtual machine can only be in one of {' and '.join(sets)}"
    if "placement_group" in given and "scale_set" not in sets:
        yield "placement_group", "the virtual machine is not in a scale set"
    for key in _pick(given, POLICY_KEYS) if sets else ():
        yield key, f"it belongs to {given[sets[0]]}, not to a virtual machine in it"
    role = given.get("role")
    if role is not None and vm.role != role:
        yield "role", f"virtual machines with this role must be named {role}_IN_NUMBER"
