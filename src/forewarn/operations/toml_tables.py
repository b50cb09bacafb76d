"""What the tables of an operator's TOML files have in common, and what they are refused for."""

import os
import shutil
from pathlib import Path
from typing import Annotated, Self, TypeAlias
from urllib.parse import urlsplit

from pydantic import AfterValidator, BaseModel, ConfigDict, Field, model_validator

from forewarn.domain.webhook import is_header, is_url


class WrongKeyError(Exception):
    """What is wrong with *key* of a table; whoever knows the file says where that is."""

    def __init__(self, key: str, problem: str) -> None:
        super().__init__(problem)
        self.key = key


def _check_address(url: str) -> str:
    if not is_url(url):
        raise ValueError("write a URL that begins with http:// or https://")
    if not _has_host(url):
        raise ValueError("the host or port is invalid; in a password, write / as %2F and @ as %40")
    return url


def _has_host(url: str) -> bool:
    # What these errors say has parts of the URL in it, and those may be secrets.
    try:
        parts = urlsplit(url)
        host = (parts.hostname or "").encode("idna")
        return bool(host) and parts.port != 0
    except ValueError:
        return False


def _check_headers(headers: dict[str, str]) -> dict[str, str]:
    for name, value in headers.items():
        if not is_header(name, value):
            raise ValueError(f"{name!r} cannot be a header with such a value")
    return headers


def _check_word(word: str) -> str:
    if "\0" in word:
        raise ValueError("no word of a command can have a NUL in it")
    return word


Address: TypeAlias = Annotated[str, AfterValidator(_check_address)]
Headers: TypeAlias = Annotated[dict[str, str], AfterValidator(_check_headers)]
Words: TypeAlias = tuple[Annotated[str, AfterValidator(_check_word)], ...]
"""A program and its arguments."""


class Table(BaseModel):
    """A table that takes no other keys. What was given is not repeated: it may be a secret."""

    model_config = ConfigDict(extra="forbid", frozen=True, hide_input_in_errors=True)


class SecretTable(Table):
    """A table with a secret, in it or in a file beside it."""

    secret: str | None = Field(default=None, min_length=1, repr=False)
    secret_file: Path | None = None

    @model_validator(mode="after")
    def _check_together(self) -> Self:
        if self.secret is not None and self.secret_file is not None:
            raise ValueError("it has a secret and a secret_file, and can only have one")
        return self

    def find_secret(self, folder: Path) -> str | None:
        """Return the secret, if there is one; its file is looked for in *folder*."""
        if self.secret_file is None:
            return self.secret
        try:
            secret = (folder / self.secret_file).read_text(encoding="utf-8").strip()
        except (OSError, UnicodeDecodeError) as error:
            raise WrongKeyError("secret_file", f"the secret cannot be read: {error}") from None
        if not secret:
            raise WrongKeyError("secret_file", "there is no secret in the file")
        return secret


def find_program(words: Words, folder: Path, search_path: str, key: str = "run") -> str:
    """Return the program of *words*; one with a slash is meant from *folder*, as paths are.

    *key* has the words.
    """
    wanted = str(folder / words[0]) if os.sep in words[0] else words[0]
    found = shutil.which(wanted, path=search_path)
    if found is None:
        raise WrongKeyError(key, f"there is no program {words[0]!r} that can be run")
    return found


def as_clause(problem: str) -> str:
    """Return *problem* as it stands behind a colon."""
    return f"{problem[:1].lower()}{problem[1:]}".rstrip(".")
