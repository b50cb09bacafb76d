"""The file of sources and the mapping file, and what is wrong with them."""

from collections.abc import Callable
from datetime import timedelta
from pathlib import Path

import pytest
from tests.discovery.conftest import ENVIRONMENT
from tests.needs import need_libvirt

from forewarn.discovery.command import CommandSource
from forewarn.discovery.configuration import read_sources
from forewarn.discovery.libvirt import LibvirtSource
from forewarn.discovery.mapping import read_placement
from forewarn.discovery.vocabulary import AddressPlace
from forewarn.files.tables import TablesError
from forewarn.operations.reconciling import Terms

RUN = '[[discovery]]\nname = "cmdb"\nrun = ["true"]\n'
LIBVIRT = '[[discovery]]\nname = "kvm"\nlibvirt = ["qemu:///system"]\n'

Write = Callable[[str], Path]


@pytest.fixture
def write(tmp_path: Path) -> Write:
    def write_file(text: str) -> Path:
        path = tmp_path / "discovery.toml"
        path.write_text(text, encoding="utf-8")
        return path

    return write_file


def test_without_a_file_there_is_no_source() -> None:
    assert read_sources(None, ENVIRONMENT) == ()


def test_program_is_a_source(write: Write, tmp_path: Path) -> None:
    more = 'every = "5m"\ntimeout = "1m"\nremove_after = 5\nmost_missing = 10\n'

    (known,) = read_sources(write(RUN + more), ENVIRONMENT)

    assert (known.name, known.kind, known.every) == ("cmdb", "run", timedelta(minutes=5))
    assert known.terms == Terms(source="cmdb", remove_after=5, most_missing=10)
    assert isinstance(known.source, CommandSource)
    assert known.source.folder == tmp_path


def test_hypervisors_are_a_source(write: Write, tmp_path: Path) -> None:
    need_libvirt()
    (tmp_path / "map.toml").write_text('[[scale_set]]\nname = "batch"\n', encoding="utf-8")
    more = 'host = "kvm-1"\nmapping = "map.toml"\naddresses = ["agent", "lease"]\n'

    (known,) = read_sources(write(LIBVIRT + more), ENVIRONMENT)

    assert (known.kind, known.terms) == ("libvirt", Terms(source="kvm"))
    assert isinstance(known.source, LibvirtSource)
    assert known.source.host == "kvm-1"
    assert known.source.addresses == (AddressPlace.AGENT, AddressPlace.LEASE)
    assert known.source.placement.sets == {"scale_set": [{"name": "batch"}]}


@pytest.mark.parametrize(
    ("text", "problem"),
    [
        ('[[discovery]]\nname = "x"\n', ":2: name of discovery 1: write either libvirt or run."),
        (RUN + 'libvirt = ["qemu:///system"]\n', "write either libvirt or run"),
        (RUN + RUN, ":5: name of discovery 2: 'cmdb' is already defined."),
        (
            RUN + 'mapping = "x"\n',
            ":4: mapping of discovery 1: it cannot be used together with run",
        ),
        (
            RUN.replace("true", "nobody-has-this"),
            "program not found or not executable: 'nobody-has-this'",
        ),
        (RUN + 'every = "0s"\n', ":4: every of discovery 1: "),
        (RUN + "most_missing = 101\n", ":4: most_missing of discovery 1: "),
        (LIBVIRT + 'host = "kvm 1"\n', "'kvm 1' is not a valid host name"),
        (
            LIBVIRT.replace('"]', '", "x:///"]') + 'host = "a"\n',
            "it can only be used with a single URI",
        ),
        (LIBVIRT.replace('"qemu:///system"', ""), "libvirt of discovery 1: it is empty"),
        (LIBVIRT + 'addresses = ["dns"]\n', "addresses of discovery 1"),
        (LIBVIRT + 'mapping = "gone.toml"\n', "gone.toml"),
    ],
)
def test_what_is_wrong_is_told_with_its_line(write: Write, text: str, problem: str) -> None:
    if "mapping" in text and LIBVIRT in text:
        need_libvirt()

    with pytest.raises(TablesError) as refusal:
        read_sources(write(text), ENVIRONMENT)

    assert problem in str(refusal.value)


@pytest.mark.parametrize(
    ("text", "problem"),
    [
        ('availability_set = "a"\nscale_set = "b"', "a virtual machine can only be in one of"),
        ('placement_group = "a"', "the virtual machine is not in a scale set"),
        ('name = "web-0"', "name"),
    ],
)
def test_mapping_that_no_machine_can_follow_is_refused(
    write: Write, text: str, problem: str
) -> None:
    path = write(f"[[virtual_machine]]\nnames = ['web-*']\n{text}\n")

    with pytest.raises(TablesError) as refusal:
        read_placement(path)

    assert problem in str(refusal.value)
