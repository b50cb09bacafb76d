"""A source that a program of the operator is: it prints a fleet file, as TOML or JSON."""

import json
import threading
from collections.abc import Mapping
from dataclasses import dataclass
from datetime import timedelta
from pathlib import Path
from typing import Any

from forewarn.discovery.programs import run_program
from forewarn.discovery.sources import SourceError
from forewarn.files.fleet import Fleet, FleetError, FleetMistakesError, read_fleet
from forewarn.files.toml import NotTomlError, decode
from forewarn.operations.reconciling import Census


@dataclass(frozen=True, slots=True, kw_only=True)
class CommandSource:
    """Runs a program in the *folder* of its file; one mistake in the fleet refuses all of it."""

    run: tuple[str, ...]
    timeout: timedelta
    environment: Mapping[str, str]
    folder: Path

    def count(self, stopping: threading.Event) -> Census:
        """Return the machines that the program prints."""
        text = run_program(
            self.run,
            environment=self.environment,
            timeout=self.timeout.total_seconds(),
            stopping=stopping,
            folder=self.folder,
        )
        return Census(fleet=_read(text))


def _read(text: str) -> Fleet:
    try:
        return read_fleet(_decode(text))
    except FleetMistakesError as error:
        first, *others = error.mistakes
        more = f" ({len(others)} more)" if others else ""
        raise SourceError(f"It printed an invalid fleet: {first}{more}") from None
    except FleetError as error:
        raise SourceError(f"It printed an invalid fleet: {error}") from None


def _decode(text: str) -> Mapping[str, Any]:
    """Return the fleet as it is written: an object of JSON, or TOML."""
    try:
        found: Mapping[str, Any] = (
            _decode_json(text) if text.lstrip().startswith("{") else decode(text)
        )
    except NotTomlError as error:
        raise SourceError(f"Its output is not valid TOML, line {error.line}: {error}") from None
    except (ValueError, RecursionError) as error:
        raise SourceError(f"Its output is not valid JSON: {error}.") from None
    return found


def _decode_json(text: str) -> Any:
    found = json.loads(text)
    # An escape can be half a character, which nobody can store or send.
    if "\\u" in text and not _is_text(json.dumps(found, ensure_ascii=False)):
        raise ValueError("it contains half of a surrogate pair")
    return found


def _is_text(text: str) -> bool:
    """Tell whether *text* can be written as UTF-8."""
    try:
        text.encode()
    except UnicodeEncodeError:
        return False
    return True
