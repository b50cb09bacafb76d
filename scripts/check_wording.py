"""Check user-facing text against the word list in pyproject.toml, `[tool.wording.avoid]`.

User-facing are the strings in src that are sentences or phrases, the help of commands, the pages of
the console, and the documentation. Docstrings that no user sees and comments are not.

Sentences of rules and verbs are read in many places, so they name fields in backticks, not options
or commands. `OPTIONS` in cli/output.py has the option of each field. The hints of findings name
commands on purpose: they tell an operator what to run.
"""

import ast
import re
import sys
import tomllib
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Final

from forewarn.cli.output import OPTIONS

ROOT: Final = Path(__file__).parent.parent
_TEMPLATE_CODE: Final = re.compile(r"\{#.*?#\}|\{%.*?%\}|\{\{.*?\}\}|<[^>]*>", re.DOTALL)
_MARKDOWN_CODE: Final = re.compile(r"```.*?```|`[^`\n]*`", re.DOTALL)


@dataclass(frozen=True, slots=True, kw_only=True)
class Passage:
    """A piece of text, and the line on which it begins."""

    line: int
    text: str


def find_avoided(
    passages: Iterable[Passage], avoided: Mapping[str, str]
) -> Iterator[tuple[int, str, str]]:
    """Yield each avoided phrase in *passages*: its line, itself, and what to write instead."""
    phrases = [(re.compile(rf"\b(?:{each})\b", re.IGNORECASE), each) for each in avoided]
    for passage in passages:
        for pattern, phrase in phrases:
            for found in pattern.finditer(passage.text):
                line = passage.line + passage.text.count("\n", 0, found.start())
                yield line, found[0], avoided[phrase]


def read_python(source: str) -> Iterator[Passage]:
    """Yield the strings of *source* that have a space in them, and the docstrings of commands."""
    yield from (each for each in read_strings(source) if " " in each.text)


def read_strings(source: str) -> Iterator[Passage]:
    """Yield all strings of *source* but the docstrings that no user sees."""
    tree = ast.parse(source)
    unseen = {id(each.value) for each in ast.walk(tree) if isinstance(each, ast.Expr)}
    unseen -= {id(each) for each in _find_help(tree)}
    for node in ast.walk(tree):
        match node:
            case ast.Constant(value=str(text)) if id(node) not in unseen:
                yield Passage(line=node.lineno, text=text)


def read_template(source: str) -> Iterator[Passage]:
    """Yield the text of a page of the console, without its markup."""
    yield Passage(line=1, text=_TEMPLATE_CODE.sub(_keep_lines, source))


def read_markdown(source: str) -> Iterator[Passage]:
    """Yield the text of a page of the documentation, without its code."""
    yield Passage(line=1, text=_MARKDOWN_CODE.sub(_keep_lines, source))


def check_fields(sources: Mapping[str, str], options: Iterable[str]) -> Iterator[str]:
    """Yield what is wrong with the fields and options that the strings of *sources* name."""
    named = set()
    for name, source in sources.items():
        for passage in read_strings(source):
            named |= set(re.findall("`(.*?)`", passage.text))
            if re.search(r"--[a-z]|\bforewarn ", passage.text):
                yield f"{name}:{passage.line}: name the field in backticks, not its option"
    yield from (f"`{field}` has no option in OPTIONS" for field in sorted(named - {*options}))
    yield from (f"no sentence names `{field}` of OPTIONS" for field in sorted({*options} - named))


def _find_help(tree: ast.Module) -> Iterator[ast.expr]:
    """Yield the docstrings of functions that are decorated by calls, as commands and routes are."""
    for node in ast.walk(tree):
        if not isinstance(node, ast.FunctionDef | ast.AsyncFunctionDef):
            continue
        first = node.body[0]
        is_listed = any(isinstance(each, ast.Call) for each in node.decorator_list)
        if is_listed and isinstance(first, ast.Expr):
            yield first.value


def _keep_lines(match: re.Match[str]) -> str:
    return "\n" * match[0].count("\n") or " "


_READERS: Final = (
    ("src/forewarn", "*.py", read_python),
    ("src/forewarn/console/templates", "*.html", read_template),
    ("docs", "*.md", read_markdown),
    (".", "README.md", read_markdown),
)

_RULES: Final = ("src/forewarn/domain", "src/forewarn/operations", "src/forewarn/desk")
_HINTS: Final = ROOT / "src/forewarn/operations/findings.py"


def main() -> int:
    """Print what is found; return 1 if there is anything."""
    rules = tomllib.loads((ROOT / "pyproject.toml").read_text())["tool"]["wording"]["avoid"]
    sentences = {path for part in _RULES for path in (ROOT / part).glob("*.py")} - {_HINTS}
    code = 0
    for problem in check_fields(
        {str(p.relative_to(ROOT)): p.read_text() for p in sorted(sentences)}, OPTIONS
    ):
        print(problem)
        code = 1
    for folder, pattern, read in _READERS:
        search = (ROOT / folder).glob if folder == "." else (ROOT / folder).rglob
        for path in sorted(search(pattern)):
            name = path.relative_to(ROOT).as_posix()
            for line, phrase, better in find_avoided(read(path.read_text()), rules):
                print(f"{name}:{line}: {phrase!r}: write {better}")
                code = 1
    return code


if __name__ == "__main__":
    sys.exit(main())
