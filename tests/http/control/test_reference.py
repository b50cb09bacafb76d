"""What the page on the control API shows is what the server does."""

import json
import re
from pathlib import Path

import httpx2

PAGE = Path(__file__).parents[3] / "docs/reference/control-api.md"
EXAMPLE = re.compile(r"(\w+) (\S+)(?: (\{.*\}))? -> (\d+)")


def test_examples_of_the_reference_are_answered_as_shown(api: httpx2.Client) -> None:
    (shown,) = re.findall(r"^```http\n(.*?)^```$", PAGE.read_text(), re.MULTILINE | re.DOTALL)

    for line in shown.splitlines():
        example = EXAMPLE.fullmatch(line)
        assert example is not None, line
        method, path, body, status = example.groups()
        content = None if body is None else json.loads(body)
        answer = api.request(method, f"http://control{path}", json=content)
        assert answer.status_code == int(status), (line, answer.text)
