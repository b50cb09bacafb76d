"""Style sheets, scripts and pictures: with a hash of what they are in their names.

A browser keeps them for a year, and asks for another name when there is another version.
"""

from collections.abc import Mapping
from dataclasses import dataclass
from functools import cache
from hashlib import sha256
from pathlib import Path
from typing import Final

PREFIX: Final = "/static/"
STYLES: Final = "console.css"
_FOLDER: Final = Path(__file__).parent / "static"
_TYPES: Final[Mapping[str, str]] = {
    ".css": "text/css; charset=utf-8",
    ".js": "text/javascript; charset=utf-8",
    ".svg": "image/svg+xml",
}
"""The kinds of files that are served; others, such as licences, only come along."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Asset:
    """One file, as it is served."""

    name: str
    path: str
    media_type: str
    body: bytes


@cache
def assets() -> Mapping[str, Asset]:
    """Return every file by its name."""
    files = (path for path in sorted(_FOLDER.iterdir()) if path.suffix in _TYPES)
    found = [_make(path.name, path.read_bytes()) for path in files]
    return {asset.name: asset for asset in (*found, _make(STYLES, _read_styles()))}


@cache
def assets_by_path() -> Mapping[str, Asset]:
    """Return every file by where it is served."""
    return {asset.path: asset for asset in assets().values()}


@cache
def assets_version() -> str:
    """Return a hash of all static files."""
    return sha256("".join(sorted(assets_by_path())).encode()).hexdigest()[:12]


def _read_styles() -> bytes:
    """Return the style sheets as one, the look of everything first, then that of pages."""
    sheets = sorted((_FOLDER / "styles").iterdir(), key=lambda path: (path.stem != "base", path))
    return b"\n".join(sheet.read_bytes() for sheet in sheets)


def _make(name: str, body: bytes) -> Asset:
    stem, dot, suffix = name.rpartition(".")
    tag = sha256(body).hexdigest()[:12]
    media_type = _TYPES[dot + suffix]
    return Asset(name=name, path=f"{PREFIX}{stem}.{tag}.{suffix}", media_type=media_type, body=body)
