"""The record of what is ours on a host."""

import json
from dataclasses import replace
from ipaddress import IPv4Address
from pathlib import Path

import pytest

from forewarn.host_setup.bindings import HostSetupError, parse_binding
from forewarn.host_setup.planning import DNSMASQ_FILE, HostSetup, SetupRecord
from forewarn.host_setup.this_host import decode_record, encode_record

PATH = Path("/var/lib/forewarn-host/host-setup.json")
FILE = Path("/etc/dnsmasq.d", DNSMASQ_FILE)
SETUP = HostSetup(
    bridges=("br0", "br1"),
    bindings=(parse_binding("vnet0=52:54:00:00:00:11,10.0.0.11,fd00::11"),),
    dnsmasq=FILE.parent,
    router=IPv4Address("10.0.0.1"),
    libvirt="qemu:///system",
    fleet=Path("/etc/forewarn/fleet.toml"),
)
RECORD = SetupRecord(
    places=("br0",), files=(FILE,), wanted_rules="a", loaded_rules="b", setup=SETUP
)


@pytest.mark.parametrize(
    "record",
    [RECORD, SetupRecord(), replace(RECORD, setup=HostSetup(interface="lo"))],
    ids=["full", "empty", "interface"],
)
def test_record_survives_its_file(record: SetupRecord) -> None:
    assert decode_record(encode_record(record), PATH) == record


@pytest.mark.parametrize(
    "change",
    [
        {"files": ["/etc/passwd"]},
        {"files": [DNSMASQ_FILE]},
        {"places": None},
        {"setup": {}},
        {"setup": {**json.loads(encode_record(RECORD))["setup"], "bindings": [{"port": "x"}]}},
    ],
    ids=["foreign file", "relative file", "no places", "empty setup", "half a binding"],
)
def test_damaged_record_is_refused_as_a_whole(change: dict[str, object]) -> None:
    """It says what to remove, so a guess could remove what is not ours."""
    text = json.dumps({**json.loads(encode_record(RECORD)), **change})

    with pytest.raises(HostSetupError, match=r"host-setup\.json is damaged"):
        decode_record(text, PATH)


@pytest.mark.parametrize("text", ["", "{", "[]", "7"])
def test_what_is_no_record_is_refused(text: str) -> None:
    with pytest.raises(HostSetupError, match="is damaged"):
        decode_record(text, PATH)
