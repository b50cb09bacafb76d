"""A cloud, and the programs of contrib/openstack with credentials for it."""

from collections.abc import Callable, Iterator
from pathlib import Path

import pytest
from tests.contrib.conftest import CONTRIB, FAST, Program
from tests.contrib.openstack.api import OTHER_PROJECT, PASSWORD, Cloud, NovaServer

ProgramMaker = Callable[[str], Program]


def identify(number: int) -> str:
    return f"5e0d4c7a-0000-4000-8000-{number:012d}"


def make_cloud() -> Cloud:
    """Return four servers, the last of another project."""
    web = {"availability_set": "web", "update_domain": "0", "tier": "front"}
    return Cloud(
        [
            NovaServer(id=identify(0), name="web-0", address="10.0.0.100", metadata=web),
            NovaServer(id=identify(1), name="web-1", address="10.0.0.101", host="compute-2"),
            NovaServer(id=identify(2), name="db-0", address="10.0.0.102"),
            NovaServer(id=identify(3), name="idle", address="10.0.0.103", project=OTHER_PROJECT),
        ]
    )


def write_credentials(folder: Path, url: str, *lines: str) -> Path:
    """Write what a cloud's web console offers as a file for a shell."""
    path = folder / "openrc"
    usual = (
        f"export OS_AUTH_URL={url}/identity",
        "export OS_USERNAME=admin",
        f'export OS_PASSWORD="{PASSWORD}"',
        "export OS_PROJECT_NAME=admin  # the project",
        "export OS_USER_DOMAIN_NAME=Default",
        "export OS_PROJECT_DOMAIN_ID=default",
        "export OS_REGION_NAME=RegionOne",
    )
    path.write_text("\n".join(lines or usual), encoding="ascii")
    path.chmod(0o600)
    return path


@pytest.fixture
def cloud() -> Iterator[Cloud]:
    cloud = make_cloud()
    with cloud.api.listening():
        yield cloud


@pytest.fixture
def program(cloud: Cloud, tmp_path: Path) -> ProgramMaker:
    """Return a function that returns a program of the folder, which asks the cloud."""

    def make(name: str) -> Program:
        credentials = ("--credentials", str(write_credentials(tmp_path, cloud.api.url)))
        return Program(path=CONTRIB / "openstack" / name, arguments=(*credentials, *FAST))

    return make
