"""Golden scripts: command lines, what they print, and what they end with.

    # words about what follows
    $ forewarn vm show nobody
    ! forewarn: Unknown virtual machine 'nobody'.
    !   try: forewarn vm list
    [3]

Lines that start with `!` went to standard error. Ids, ports, secrets and real time differ from run
to run, so they are written in a way that keeps the columns; ids are numbered as they turn up, and
may be used in command lines.
"""

import re
import shlex
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass, field


@dataclass(frozen=True, slots=True)
class Ended:
    """What came of a command."""

    code: int
    stdout: str
    stderr: str


Invoke = Callable[[list[str], Mapping[str, str]], Ended]

VIRTUAL_YEAR = 2020
"""Times of any other year are real, but for the one that messages have as an example."""

_ID = re.compile(r"(?!00000000)[0-9A-Fa-f]{8}-(?:[0-9A-Fa-f]{4}-){3}[0-9A-Fa-f]{12}")
_DISGUISED = re.compile(r"00000000-0000-0000-0000-[0-9]{12}")
_SECRET = re.compile(r"\bfw_[\w-]{43}")
_REAL_TIME = re.compile(
    rf"20(?!{VIRTUAL_YEAR % 100}|26-01-05T08:15)\d\d-\d\d-\d\d([ T])"
    r"\d\d:\d\d:\d\d(?:\.\d+)?(?:Z|\+00:00)"
)
_REAL_STAMP = re.compile(rf"20(?!{VIRTUAL_YEAR % 100})\d{{6}}T\d{{6}}Z")


@dataclass(frozen=True, slots=True)
class Step:
    """A command line with the words above it, and whether it ended well when it was written."""

    words: tuple[str, ...]
    line: str
    code: int | None

    @property
    def arguments(self) -> list[str]:
        """What stands behind `forewarn`."""
        return shlex.split(self.line.partition("forewarn")[2], comments=True)

    @property
    def variables(self) -> dict[str, str]:
        """What stands before `forewarn`."""
        pairs = (word.partition("=") for word in self.line.partition("forewarn ")[0].split())
        return {name: value for name, _, value in pairs}


def read_script(text: str) -> Iterator[Step]:
    """Yield the steps of a script."""
    words: list[str] = []
    line: str | None = None
    for each in text.splitlines():
        if line is None and each.startswith("$ "):
            line = each[2:]
        elif line is None and each:
            words.append(each)
        elif line is not None and (ended := re.fullmatch(r"\[(\d+)\]", each)):
            yield Step(tuple(words), line, int(ended[1]))
            words, line = [], None
    if line is not None:
        yield Step(tuple(words), line, None)


@dataclass(slots=True)
class Disguise:
    """Writes what differs from run to run in a way that does not, and back."""

    server: str
    _names: dict[str, str] = field(default_factory=dict)

    def put_on(self, text: str) -> str:
        """Return *text* as it is kept."""
        text = _ID.sub(lambda found: self._name(found[0]), text)
        text = _SECRET.sub(lambda found: "fw_secret-".ljust(len(found[0]), "x"), text)
        text = _REAL_TIME.sub(lambda found: f"YYYY-MM-DD{found[1]}HH:MM:SSZ", text)
        return _REAL_STAMP.sub("YYYYMMDDTHHMMSSZ", text).replace(self.server, "127.0.0.1:8170")

    def take_off(self, word: str) -> str:
        """Return *word* of a command line as the server knows it."""
        real = {name: each for each, name in self._names.items()}
        return _DISGUISED.sub(lambda found: real.get(found[0], found[0]), word)

    def _name(self, real: str) -> str:
        number = len(self._names) + 1
        return self._names.setdefault(real, f"00000000-0000-0000-0000-{number:012d}")


def play(steps: Iterator[Step], invoke: Invoke, disguise: Disguise) -> str:
    """Return the script with what happens now."""
    return "\n".join(_play_one(step, invoke, disguise) for step in steps)


def _play_one(step: Step, invoke: Invoke, disguise: Disguise) -> str:
    result = invoke([disguise.take_off(word) for word in step.arguments], step.variables)
    printed = disguise.put_on(result.stdout).splitlines()
    complaints = [f"! {line}".rstrip() for line in disguise.put_on(result.stderr).splitlines()]
    lines = (*step.words, f"$ {step.line}", *printed, *complaints, f"[{result.code}]")
    return "".join(f"{line}\n" for line in lines)
