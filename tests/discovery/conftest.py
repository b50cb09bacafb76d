"""Hosts of libvirt's test driver, which are files, and programs that print fleets."""

import os
from collections.abc import Callable
from pathlib import Path
from typing import Final

import pytest
from tests.needs import need_libvirt

ENVIRONMENT: Final = {name: os.environ[name] for name in ("PATH", "HOME") if name in os.environ}  # noqa: TID251
NETWORK: Final = """
<network><name>default</name><uuid>004b96e1-2d78-c30f-5aa5-f03c87d21e67</uuid><forward/>
<bridge name='virbr0'/><ip address='192.168.122.1' netmask='255.255.255.0'>
<dhcp><range start='192.168.122.2' end='192.168.122.254'/></dhcp></ip></network>
"""
DOMAIN: Final = """
<domain type='test'><name>{name}</name><uuid>{uuid}</uuid><memory>131072</memory><vcpu>1</vcpu>
<os><type>hvm</type></os><metadata>{metadata}</metadata><devices>
<interface type='network'><mac address='{mac}'/><source network='default'/></interface>
</devices></domain>
"""

NodeWriter = Callable[..., str]
ScriptWriter = Callable[[str], tuple[str, ...]]


def domain(number: int, name: str = "", metadata: str = "") -> str:
    """Return the XML of a domain that runs."""
    return DOMAIN.format(
        name=name or f"web-{number}",
        uuid=f"4a6b1f0e-0000-4000-8000-{number:012}",
        mac=f"52:54:00:00:00:{number:02x}",
        metadata=metadata,
    )


def place(attributes: str, inner: str = "") -> str:
    """Return our metadata of a domain."""
    return f'<f:vm xmlns:f="urn:forewarn:fleet" {attributes}>{inner}</f:vm>'


@pytest.fixture
def node(tmp_path: Path) -> NodeWriter:
    """Return what writes the file of a host, and returns its URI."""
    need_libvirt()

    def write(*domains: str, name: str = "node") -> str:
        path = tmp_path / f"{name}.xml"
        path.write_text(f"<node>{NETWORK}{''.join(domains)}</node>", encoding="utf-8")
        return f"test:///{path}"

    return write


@pytest.fixture
def script(tmp_path: Path) -> ScriptWriter:
    """Return what writes a program, and returns how to run it."""

    def write(text: str) -> tuple[str, ...]:
        path = tmp_path / "inventory"
        path.write_text(f"#!/bin/sh\n{text}\n", encoding="utf-8")
        path.chmod(0o755)
        return (str(path),)

    return write
