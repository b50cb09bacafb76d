"""What the XML of a libvirt domain says about its place in the fleet. It costs little to import.

Operators write the keys of the fleet file as attributes of one element in the metadata of a domain,
with labels and tags as elements in it.
"""

from collections.abc import Iterable, Mapping
from dataclasses import asdict, dataclass, field
from ipaddress import ip_address
from typing import Any, Final
from xml.etree import ElementTree as ET

from forewarn.domain.topology import find_special_purpose, normalise_address

NAMESPACE: Final = "urn:forewarn:fleet"
"""The namespace of our element in the metadata of a domain."""
_NUMBERS: Final = frozenset({"update_domain", "fault_domain"})
_MOST_CLAIMED: Final = 16
_MOST_DIGITS: Final = 9
_PAIRS: Final = {"label": "labels", "tag": "tags"}
_YES: Final = frozenset({"yes", "true", "1"})


@dataclass(frozen=True, slots=True, kw_only=True)
class FoundDomain:
    """A domain of a hypervisor: *rank* is 2 if it runs, 1 if it is paused, and 0 if it is off.

    *keys* are what its metadata says, as a fleet file would. With *has_claimed*, the guest itself
    has told its addresses.
    """

    name: str
    uuid: str
    rank: int = 0
    macs: tuple[str, ...] = ()
    addresses: tuple[str, ...] = ()
    has_claimed: bool = False
    keys: Mapping[str, Any] = field(default_factory=dict)
    is_ignored: bool = False

    def encode(self) -> dict[str, Any]:
        """Return it as JSON has it."""
        return asdict(self)

    @classmethod
    def decode(cls, row: Mapping[str, Any]) -> "FoundDomain":
        """Return what `encode` has returned."""
        return cls(**{**row, "macs": tuple(row["macs"]), "addresses": tuple(row["addresses"])})


def read_domain(xml: str, *, rank: int = 0) -> FoundDomain:
    """Return what the *xml* of a domain says."""
    root = ET.fromstring(xml)  # noqa: S314 - libvirt has written it, from what it parsed
    ours = root.find(f"metadata/{{{NAMESPACE}}}*")
    keys = {} if ours is None else _read_keys(ours)
    ignore = str(keys.pop("ignore", ""))
    interfaces = root.iterfind("devices/interface/mac")
    return FoundDomain(
        name=root.findtext("name", ""),
        uuid=root.findtext("uuid", ""),
        rank=rank,
        macs=tuple(mac.get("address", "").lower() for mac in interfaces),
        keys=keys,
        is_ignored=ignore.lower() in _YES,
    )


def _read_keys(element: ET.Element) -> dict[str, Any]:
    keys: dict[str, Any] = dict(element.attrib)
    for key in _NUMBERS & keys.keys():
        # Whoever reads the fleet says what is wrong with others.
        if keys[key].isdecimal() and len(keys[key]) <= _MOST_DIGITS:
            keys[key] = int(keys[key])
    if "addresses" in keys:
        keys["addresses"] = keys["addresses"].split()
    for child in element:
        # libvirt puts the children into our namespace, others leave them without one.
        table = _PAIRS.get(child.tag.rpartition("}")[2])
        if table is not None and table not in element.attrib:
            keys.setdefault(table, {})[child.get("name", "")] = child.get("value", "")
    return keys


def usable_addresses(addresses: Iterable[str]) -> tuple[str, ...]:
    """Return the addresses that a machine can be known by from outside, in one order."""
    usable = {
        ip_address(normalise_address(each)) for each in addresses if not find_special_purpose(each)
    }
    return tuple(map(str, sorted(usable, key=lambda each: (each.version, int(each)))))


def claimed_addresses(addresses: Iterable[str]) -> tuple[str, ...]:
    """Return the addresses of a guest that tells them itself; not so many as a network has."""
    return usable_addresses(addresses)[:_MOST_CLAIMED]
