"""What we touch of uvicorn, typer and FastAPI is still there, and nobody touches more of it."""

import ast
import inspect
import re
import tomllib
from collections.abc import Iterator, Mapping
from functools import cache
from importlib.metadata import version
from pathlib import Path

import pytest

import forewarn
from forewarn.cli import framework
from forewarn.connections import uvicorn_parts
from forewarn.control import fastapi_parts

ROOT = Path(__file__).parents[2]
PACKAGE = Path(forewarn.__file__).parent
TOUCHED: dict[str, Mapping[type, str]] = {
    "uvicorn": uvicorn_parts.TOUCHED,
    "typer": framework.TOUCHED,
    "fastapi": fastapi_parts.TOUCHED,
}
HOMES = {
    "uvicorn": "connections/uvicorn_parts.py",
    "typer": "cli/framework.py",
    "fastapi": "control/fastapi_parts.py",
}
DOCUMENTED = {
    "fastapi.exceptions",
    "fastapi.responses",
    "fastapi.routing",
    "fastapi.security",
}
"""The modules that their documentation has one import from."""


@cache
def names_of(owner: type) -> set[str]:
    """Return what *owner* or its parents declare, annotate or set on themselves."""
    found = set(dir(owner))
    for each in owner.__mro__[:-1]:
        found |= set(inspect.get_annotations(each))
        if each.__module__.partition(".")[0] in {"uvicorn", "typer", "fastapi", "starlette"}:
            for line in re.findall(
                r"^\s*(self\.[^=\n]*) = ", inspect.getsource(each), re.MULTILINE
            ):
                found |= set(re.findall(r"self\.(\w+)", line))
    return found


@pytest.mark.parametrize("library", TOUCHED)
def test_nothing_that_we_touch_has_moved(library: str) -> None:
    moved = [
        f"{owner.__module__}.{owner.__qualname__}.{name}"
        for owner, names in TOUCHED[library].items()
        for name in names.split()
        if name not in names_of(owner)
    ]

    assert moved == [], f"{library} {version(library)} has moved what {HOMES[library]} names"


def test_move_is_noticed_by_name() -> None:
    class Server:
        should_exit = False

    assert "should_exit" in names_of(Server)
    assert "on_tick" not in names_of(Server)


@cache
def imports_in_package() -> frozenset[tuple[str, str]]:
    """Return each file, and what it imports; read once, for all libraries."""
    return frozenset(
        (str(path.relative_to(PACKAGE)), module)
        for path in PACKAGE.rglob("*.py")
        for module in imports_in(path)
    )


def imports_in(path: Path) -> Iterator[str]:
    for node in ast.walk(ast.parse(path.read_text(encoding="utf-8"))):
        if isinstance(node, ast.ImportFrom) and node.module is not None:
            yield node.module
        elif isinstance(node, ast.Import):
            yield from (each.name for each in node.names)


@pytest.mark.parametrize("library", TOUCHED)
def test_internals_are_imported_in_one_module(library: str) -> None:
    others = {
        f"{file}: {module}"
        for file, module in imports_in_package()
        if module.startswith(f"{library}.") and module not in DOCUMENTED
    }

    assert {each for each in others if not each.startswith(f"{HOMES[library]}:")} == set()
    assert others


@pytest.mark.parametrize("library", TOUCHED)
def test_newer_versions_are_kept_out_until_somebody_looked(library: str) -> None:
    project = tomllib.loads((ROOT / "pyproject.toml").read_text(encoding="utf-8"))["project"]
    extras = project["optional-dependencies"]
    (wanted,) = {
        each for extra in extras.values() for each in extra if each.startswith(f"{library}>")
    }

    assert re.fullmatch(rf"{library}>=[\d.]+,<[\d.]+", wanted), wanted
