"""The files of the pages on discovery are right, and the way through the how-to works."""

import os
import re
import shlex
from collections.abc import Iterator
from functools import partial
from pathlib import Path

import pytest
from tests.discovery.conftest import ENVIRONMENT, NETWORK, domain
from tests.e2e.conftest import ANSWER_SECONDS, Server, wait_until
from tests.needs import need_libvirt

from forewarn.discovery.configuration import DiscoveryTable, read_sources
from forewarn.discovery.domains import read_domain
from forewarn.discovery.libvirt import HostAnswer, make_listing
from forewarn.discovery.mapping import MachineTable, SetTable, read_placement

DOCS = Path(__file__).parents[2] / "docs"
PAGE = (DOCS / "reference/discovery.md").read_text(encoding="utf-8")
HOW_TO = (DOCS / "how-to/discover-your-fleet.md").read_text(encoding="utf-8")
TOML = re.compile(r"```toml\n(.*?)```", re.DOTALL)


@pytest.fixture(autouse=True)
def _libvirt() -> None:
    need_libvirt()


def test_files_of_the_reference_are_right_and_have_every_key(tmp_path: Path) -> None:
    sources, mapping = TOML.findall(PAGE)
    (tmp_path / "mapping.toml").write_text(mapping, encoding="utf-8")
    (tmp_path / "discovery.toml").write_text(sources, encoding="utf-8")
    (tmp_path / "inventory").touch(mode=0o755)

    known = read_sources(tmp_path / "discovery.toml", ENVIRONMENT)

    assert [(each.name, each.kind) for each in known] == [("kvm", "libvirt"), ("cmdb", "run")]
    assert keys(sources) == DiscoveryTable.model_fields.keys()
    assert keys(mapping) == {*MachineTable.model_fields, *SetTable.model_fields}


def keys(text: str) -> set[str]:
    return set(re.findall(r"^(\w+) = ", text, re.MULTILINE))


def test_metadata_of_the_reference_is_read() -> None:
    (metadata,) = re.findall(r"```xml\n<metadata>(.*?)</metadata>", PAGE, re.DOTALL)

    assert read_domain(domain(1, metadata=metadata)).keys == {
        "availability_set": "web",
        "update_domain": 1,
        "addresses": ["10.0.0.10"],
        "labels": {"tier": "front"},
        "tags": {"team": "shop"},
    }


def test_mapping_of_the_reference_places_every_kind_of_machine(tmp_path: Path) -> None:
    (tmp_path / "mapping.toml").write_text(TOML.findall(PAGE)[1], encoding="utf-8")
    names = ("web-0", "batch-0", "FrontEnd_IN_0", "template-0", "other")
    domains = tuple(read_domain(domain(n, name)) for n, name in enumerate(names))
    host = HostAnswer(uri="qemu:///system", host="kvm-1", domains=domains)

    listing = make_listing([host], read_placement(tmp_path / "mapping.toml"))

    assert not listing.remarks
    assert [each["name"] for each in listing.content["virtual_machine"]] == [
        "batch-0",
        "FrontEnd_IN_0",
        "other",
        "web-0",
    ]


@pytest.fixture
def server(tmp_path: Path) -> Iterator[Server]:
    """Return the server that the page starts, with a host of the test driver."""
    mapping, sources, program = TOML.findall(HOW_TO)
    (script,) = re.findall(r"```python\n(.*?)```", HOW_TO, re.DOTALL)
    (tmp_path / "mapping.toml").write_text(mapping, encoding="utf-8")
    (tmp_path / "discovery.toml").write_text(on_test_driver(program + sources, tmp_path), "utf-8")
    (tmp_path / "inventory").write_text(script, encoding="utf-8")
    (tmp_path / "inventory").chmod(0o755)
    (tmp_path / "kvm-1.xml").write_text(node(domain(1), domain(2, "template-1")), "utf-8")
    (tmp_path / "fleet.toml").touch()
    (tmp_path / "data").mkdir()
    ((verb, *flags),) = (words for words in typed(tmp_path) if words[0] == "serve")
    assert verb == "serve"
    made = Server(
        database=tmp_path / "data" / "forewarn.db",
        fleet=tmp_path / "fleet.toml",
        flags=tuple(flags),
        environment={"PATH": os.defpath, "HOME": str(tmp_path)},
        log=tmp_path / "server.log",
    )
    made.start()
    yield made
    made.kill()


def typed(folder: Path) -> list[list[str]]:
    """Return the commands of the page, with their files in *folder*."""
    lines = re.findall(r"^\$ forewarn (.*)$", HOW_TO, re.MULTILINE)
    commands = (shlex.split(on_test_driver(line, folder)) for line in lines)
    return [
        [str(folder / word) if word.endswith(".toml") else word for word in words]
        for words in commands
    ]


def test_way_through_the_how_to_works(server: Server, tmp_path: Path) -> None:
    for vm in ("web-1", "shop-0"):
        wait_until(partial(knows, server, vm), f"{vm} does not appear", ANSWER_SECONDS)

    found = server.operate("GET", "virtual-machines/web-1").json()
    assert (found["scope_id"], found["labels"]["tier"]) == ("availability-set/web", "front")
    assert not knows(server, "template-1")
    for words in typed(tmp_path):
        if words[0] != "serve":
            done = server.try_command(*words)
            assert done.returncode == 0, f"{words}: {done.stdout}{done.stderr}"


def knows(server: Server, vm: str) -> bool:
    return server.operate("GET", f"virtual-machines/{vm}").status == 200


def on_test_driver(text: str, folder: Path) -> str:
    """Return *text* with one host of the test driver in place of two that are asked by SSH."""
    one = re.sub(r",? ?\"?qemu\+ssh://root@kvm-2/system\"?", "", text)
    return one.replace("qemu+ssh://root@kvm-1/system", f"test:///{folder}/kvm-1.xml")


def node(*domains: str) -> str:
    return f"<node>{NETWORK}{''.join(domains)}</node>"
