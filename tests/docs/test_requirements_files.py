"""The pins of requirements/: those of an extra cover it, and go with the others."""

import re
import tomllib
from collections.abc import Iterator
from importlib.metadata import requires
from pathlib import Path

import pytest
from packaging.requirements import Requirement
from packaging.utils import canonicalize_name

ROOT = Path(__file__).parents[2]
EXTRAS = tomllib.loads((ROOT / "pyproject.toml").read_text("utf-8"))["project"][
    "optional-dependencies"
]
PINNED = ("libvirt", "notify", "postgres")
"""The extras that are installed in addition to requirements/runtime.txt."""


def pins(name: str) -> dict[str, str]:
    """Return the version of each package in a file of requirements/."""
    text = (ROOT / f"requirements/{name}.txt").read_text("utf-8")
    blocks = re.split(r"^(?=\S)", text, flags=re.MULTILINE)[1:]
    assert all("--hash=sha256:" in block for block in blocks)
    return dict(block.split(maxsplit=1)[0].split("==") for block in blocks)


def own(extra: str) -> list[Requirement]:
    """Return what *extra* adds to the server."""
    parsed = map(Requirement, EXTRAS[extra])
    return [each for each in parsed if each.name != "forewarn"]


def needed(requirement: Requirement) -> Iterator[Requirement]:
    """Yield everything that *requirement* needs here, by what is installed."""
    yield requirement
    for text in requires(requirement.name) or ():
        each = Requirement(text)
        wanted = [{"extra": extra} for extra in (*requirement.extras, "")]
        if each.marker is None or any(map(each.marker.evaluate, wanted)):
            yield from needed(each)


@pytest.mark.parametrize("extra", PINNED)
def test_extra_is_pinned_as_it_is_declared(extra: str) -> None:
    makefile = (ROOT / "Makefile").read_text("utf-8")

    for requirement in own(extra):
        assert requirement.specifier.contains(pins(extra)[requirement.name])
        (line,) = re.findall(
            rf"^\t@echo '(.*)' \| .* requirements/{extra}\.txt$", makefile, re.MULTILINE
        )
        assert line == str(requirement)


@pytest.mark.parametrize("extra", ["notify", "postgres"])
def test_pins_of_an_extra_cover_all_that_it_needs(extra: str) -> None:
    covered = {**pins("runtime"), **pins(extra)}

    for requirement in own(extra):
        for each in needed(requirement):
            assert each.specifier.contains(covered[canonicalize_name(each.name)]), each


@pytest.mark.parametrize("extra", ["notify", "postgres"])
def test_pins_of_an_extra_go_with_the_others(extra: str) -> None:
    found = pins(extra).items()

    for name in ("runtime", "dev"):
        others = pins(name)
        assert not [each for each in found if others.get(each[0], each[1]) != each[1]]


@pytest.mark.parametrize(
    ("page", "extra"), [("run-several-replicas", "postgres"), ("send-notifications", "notify")]
)
def test_how_to_installs_the_pins_of_the_extra(page: str, extra: str) -> None:
    text = (ROOT / f"docs/how-to/{page}.md").read_text("utf-8")

    files = f"-r requirements/runtime.txt -r requirements/{extra}.txt"
    assert f"pip install --require-hashes {files}" in " ".join(text.split())
