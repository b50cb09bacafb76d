"""The record of a setup as a file of JSON, beside nothing else in a directory of its own."""

import json
from dataclasses import asdict
from ipaddress import IPv4Address
from pathlib import Path
from typing import Any, Final

from forewarn.host_setup.bindings import HostSetupError, make_binding
from forewarn.host_setup.planning import DNSMASQ_FILE, HostSetup, SetupRecord

RECORD_FILE: Final = "host-setup.json"
STATE_DIRECTORY: Final = Path("/var/lib/forewarn-host")


def encode_record(record: SetupRecord) -> str:
    """Return *record* as the content of its file."""
    return json.dumps(asdict(record), default=str, indent=1) + "\n"


def decode_record(text: str, path: Path) -> SetupRecord:
    """Return the record in *text*, which is from *path*, or refuse."""
    try:
        content = json.loads(text)
        setup = content["setup"]
        return SetupRecord(
            places=tuple(map(str, content["places"])),
            files=tuple(map(_decode_file, content["files"])),
            wanted_rules=str(content["wanted_rules"]),
            loaded_rules=str(content["loaded_rules"]),
            setup=None if setup is None else _decode_setup(setup),
        )
    except (ValueError, KeyError, TypeError, HostSetupError) as error:
        raise HostSetupError(
            f"{path} is damaged.",
            "remove it, run forewarn host setup --undo, and check: ip address; ip rule",
        ) from error


def _decode_setup(content: Any) -> HostSetup:
    router, dnsmasq, fleet = content["router"], content["dnsmasq"], content["fleet"]
    return HostSetup(
        bridges=tuple(map(str, content["bridges"])),
        interface=str(content["interface"]),
        bindings=tuple(make_binding(**each) for each in content["bindings"]),
        dnsmasq=None if dnsmasq is None else Path(dnsmasq),
        router=None if router is None else IPv4Address(router),
        libvirt=str(content["libvirt"]),
        fleet=None if fleet is None else Path(fleet),
    )


def _decode_file(text: str) -> Path:
    # It will be removed, so it must be a file that we can have made.
    path = Path(text)
    if path.name != DNSMASQ_FILE or not path.is_absolute():
        raise ValueError(f"{text} is not a file of ours")
    return path
