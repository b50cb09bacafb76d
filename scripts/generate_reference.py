"""Write the pages and pictures of docs that are made from tables in the code.

Run it with `make reference`; `--check` only tells whether it would change anything.
"""

import json
import sys
from collections.abc import Iterable, Iterator
from enum import StrEnum
from pathlib import Path
from typing import Any, Final

import forewarn.control.app  # noqa: F401 - with the errors of all that it can do
from command_reference import command_line
from draw_pictures import pictures
from forewarn.control.problems import problem_of, refusals
from forewarn.domain.event import DESCRIPTIONS, TRANSITIONS
from forewarn.domain.notice import MINIMUM_NOTICE
from forewarn.protocol.errors import ERROR_ANSWERS
from forewarn.protocol.versions import API_VERSIONS
from forewarn.settings import Settings
from forewarn.settings_table import SETTINGS
from forewarn.wording.durations import format_duration
from wire_schemas import document_schema, openapi

DOCS: Final = Path(__file__).parent.parent / "docs"
REFERENCE: Final = DOCS / "reference"


def pages() -> Iterator[tuple[Path, str]]:
    """Yield each generated page and picture with its text."""
    yield REFERENCE / "tables.md", "\n".join(_tables())
    yield REFERENCE / "cli.md", "\n".join(command_line())
    for version in API_VERSIONS:
        for kind, content in (("schema", document_schema(version)), ("openapi", openapi(version))):
            yield REFERENCE / "wire" / f"{version.name}.{kind}.json", _pretty(content)
    for name, picture in pictures():
        yield DOCS / "pictures" / name, picture


def main() -> int:
    """Bring every page up to date, or with --check say which are not."""
    stale = [
        (path, text)
        for path, text in pages()
        if not path.exists() or path.read_text(encoding="utf-8") != text
    ]
    if "--check" in sys.argv[1:]:
        for path, _ in stale:
            print(f"{path.relative_to(DOCS)} is out of date; run: make reference")
        return 1 if stale else 0
    for path, text in stale:
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text(text, encoding="utf-8")
        print(f"wrote {path.relative_to(DOCS)}")
    return 0


def _pretty(content: dict[str, Any]) -> str:
    return json.dumps(content, indent=2) + "\n"


def _tables() -> Iterator[str]:
    yield "# Settings, errors and rules"
    yield ""
    yield "Generated from the tables in the code by `make reference`."
    yield from _table(
        "API versions",
        ("api-version", "adds", "NotBefore", "Metadata header on POST", "specification"),
        _version_rows(),
    )
    yield from _table(
        "Minimum notice",
        ("EventType", "notice"),
        ((kind, format_duration(notice)) for kind, notice in MINIMUM_NOTICE.items()),
    )
    yield from _table(
        "Default descriptions",
        ("EventType", "EventSource", "Description"),
        ((*pair, description) for pair, description in DESCRIPTIONS.items()),
    )
    yield from _table(
        "The life of an event",
        ("from", "trigger", "to"),
        ((status, trigger, after) for (status, trigger), after in TRANSITIONS.items()),
    )
    yield ""
    yield "![The life of an event](../pictures/life-of-an-event.svg)"
    yield from _table(
        "Errors of the metadata endpoint",
        ("reason", "status", "body"),
        (
            (refusal.value, answer.status, f"`{answer.body.decode()}`")
            for refusal, answer in ERROR_ANSWERS.items()
        ),
    )
    yield from _table(
        "Settings of the server",
        ("setting", "default", "description"),
        (
            (f"`{name}`", _default(field.default), f"{field.description}{_choices(name)}")
            for name, field in Settings.model_fields.items()
        ),
    )
    yield ""
    yield "Each setting is a flag of `forewarn serve` (`--state-dir`), an environment variable"
    yield "(`FOREWARN_STATE_DIR`) and a key in `forewarn.toml` (`state_dir`). Flags override"
    yield "variables, and variables override the file. `proxy_secret` has no flag."
    yield from _table(
        "Errors of the control API",
        ("type", "status"),
        ((f"`{kind}`", status) for kind, status in sorted(set(_problems()))),
    )
    yield ""
    yield "The `type` of an error is `urn:forewarn:problem:` followed by one of these names."
    yield ""


def _choices(name: str) -> str:
    kind = SETTINGS[name].kind
    if not issubclass(kind, StrEnum):
        return ""
    return f" Values: {', '.join(f'`{choice}`' for choice in kind)}."


def _default(value: object) -> str:
    if isinstance(value, bool):
        return f"`{json.dumps(value)}`"
    shown = ", ".join(value) if isinstance(value, tuple) else value
    return "" if shown in {None, ""} else f"`{shown}`"


def _problems() -> Iterator[tuple[str, int]]:
    """Yield each kind of problem that the control API answers with, and its status."""
    errors = [*refusals()]
    for error in errors:
        errors += error.__subclasses__()
        problem = problem_of(error.__new__(error))
        yield problem.kind, problem.status.value


def _version_rows() -> Iterator[tuple[object, ...]]:
    known: set[str] = set()
    for version in API_VERSIONS:
        offers = [*version.fields, *sorted(version.event_types)]
        yield (
            version.name,
            ", ".join(f"`{word}`" for word in offers if word not in known) or "nothing",
            f"`{version.not_before.value}`",
            "required" if version.metadata_header_on_post else "optional",
            " and ".join(
                f"[{kind}](wire/{version.name}.{kind}.json)" for kind in ("schema", "openapi")
            ),
        )
        known.update(offers)


def _table(
    title: str, header: tuple[str, ...], rows: Iterable[tuple[object, ...]]
) -> Iterator[str]:
    yield from ("", f"## {title}", "")
    for row in (header, ["---"] * len(header), *rows):
        yield f"| {' | '.join(map(str, row))} |"


if __name__ == "__main__":
    sys.exit(main())
