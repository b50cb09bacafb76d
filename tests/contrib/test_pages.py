"""What the READMEs of contrib say about the programs is true."""

import re
import tomllib

import pytest
from tests.contrib.conftest import CONTRIB, Program

PRODUCTS = {"proxmox": "pve_*.py", "openstack": "nova_*.py"}


def readme(product: str) -> str:
    return (CONTRIB / product / "README.md").read_text(encoding="utf-8")


@pytest.mark.parametrize("product", PRODUCTS)
def test_readme_has_each_program_and_each_is_executable(product: str) -> None:
    programs = sorted(CONTRIB.glob(f"{product}/{PRODUCTS[product]}"))

    assert re.findall(r"^\| \[(\w+\.py)\]", readme(product), re.MULTILINE) == sorted(
        (path.name for path in programs), key=readme(product).index
    )
    for path in programs:
        assert path.stat().st_mode & 0o111, path
        assert path.read_text(encoding="utf-8").startswith("#!/usr/bin/env python3\n")


@pytest.mark.parametrize("product", PRODUCTS)
def test_options_of_the_readme_are_those_of_the_programs(product: str) -> None:
    helps = "".join(
        Program(path=path, arguments=()).run("--help").printed
        for path in CONTRIB.glob(f"{product}/{PRODUCTS[product]}")
    )
    elsewhere = {"--help", "--executor-file"}

    named = set(re.findall(r"`(--[a-z-]+)", readme(product))) - elsewhere

    assert len(named) >= 8
    assert named <= set(re.findall(r"--[a-z-]+", helps))


@pytest.mark.parametrize("product", PRODUCTS)
def test_discovery_of_the_readme_runs_the_inventory(product: str) -> None:
    (text,) = re.findall(r"```toml\n(.*?)```", readme(product), re.DOTALL)

    (source,) = tomllib.loads(text.replace("\n   ", "\n"))["discovery"]

    assert source["run"][0].startswith(f"/usr/local/lib/forewarn-{product}/")
    assert source["run"][0].endswith("_inventory.py")


def test_page_names_both_folders() -> None:
    page = CONTRIB.parent / "docs" / "how-to" / "use-proxmox-or-openstack.md"

    text = page.read_text(encoding="utf-8")

    for product in PRODUCTS:
        assert f"`contrib/{product}`" in text
