"""What stewards leave on disk: that they have begun, and what they wait for."""

import os
from contextlib import suppress
from pathlib import Path
from typing import Final

from forewarn.executors.attendant import OUTPUT, claim

BEGUN: Final = ".acting"
"""The suffix of the file that is there once a steward was about to set a mark."""


class StewardNotes:
    """What stewards of one order leave on disk, beside its file."""

    def __init__(self, order_path: Path) -> None:
        self._begun = order_path.with_suffix(BEGUN)
        self._output = order_path.with_suffix(OUTPUT)
        self._is_begun = False
        self._last = ""

    @property
    def has_begun(self) -> bool:
        """Whether a steward was about to mark the domain, this one or one before."""
        return self._is_begun or self._begun.exists()

    def begin(self) -> None:
        """Remember that the domain is about to be marked."""
        descriptor = claim(self._begun, {})
        if descriptor is not None:
            os.close(descriptor)
        self._is_begun = True

    def say(self, word: str) -> None:
        """Have operators know what it waits for."""
        if word != self._last:
            self._last = word
            with suppress(OSError):  # guests are resumed on a full disk, too
                self._output.touch(mode=0o600)
                with self._output.open("a", encoding="utf-8") as file:
                    file.write(f"{word}\n")
