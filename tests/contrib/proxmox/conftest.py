"""A cluster, and the programs of contrib/proxmox with a token for it."""

from collections.abc import Callable, Iterator
from pathlib import Path

import pytest
from tests.contrib.conftest import CONTRIB, FAST, Program
from tests.contrib.proxmox.api import GIB, TOKEN, Cluster, PveGuest

ProgramMaker = Callable[[str], Program]


def make_cluster() -> Cluster:
    """Return three nodes with four guests and a template."""
    guests = (
        PveGuest(vmid=100, name="web-0", config=config(100, tags="set.web;ud.0;prod")),
        PveGuest(vmid=101, name="web-1", node="pve-2", config=config(101, tags="set.web;ud.6")),
        PveGuest(vmid=102, name="db-0", maxmem=5 * GIB, config=config(102)),
        PveGuest(vmid=103, name="idle", node="pve-3", config=config(103)),
        PveGuest(vmid=9000, name="debian-13", is_template=True, status="stopped"),
    )
    return Cluster({guest.vmid: guest for guest in guests})


def config(vmid: int, **more: str) -> dict[str, str]:
    """Return a part of a guest's file that all have."""
    return {
        "smbios1": f"uuid=5e0d4c7a-0000-4000-8000-000000000{vmid}",
        "agent": "enabled=1,fstrim_cloned_disks=1",
        "ostype": "l26",
        "net0": f"virtio=BC:24:11:00:00:{vmid - 90:02d},bridge=vmbr0",
        "ipconfig0": f"ip=10.0.0.{vmid}/24,gw=10.0.0.1",
        **more,
    }


@pytest.fixture
def cluster() -> Iterator[Cluster]:
    cluster = make_cluster()
    with cluster.api.listening():
        yield cluster


@pytest.fixture
def token_file(tmp_path: Path) -> Path:
    path = tmp_path / "pve.token"
    path.write_text(f"{TOKEN}\n", encoding="ascii")
    path.chmod(0o600)
    return path


@pytest.fixture
def program(cluster: Cluster, token_file: Path) -> ProgramMaker:
    """Return a function that returns a program of the folder, which asks the cluster."""

    def make(name: str) -> Program:
        where = ("--url", cluster.api.url, "--token-file", str(token_file))
        return Program(path=CONTRIB / "proxmox" / name, arguments=(*where, *FAST))

    return make
