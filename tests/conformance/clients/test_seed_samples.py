"""The documented samples themselves, cut out of the documents and edited only as far as they need.

Each document is a translation of the same page; samples that are the same in several run once.
"""

import re
import shlex
from collections.abc import Callable, Iterable, Mapping
from pathlib import Path

import pytest
from tests.conformance.clients.conftest import (
    SEEDS,
    THIS_HOST,
    Server,
    compile_csharp,
    find_pythons,
    run,
)

pytestmark = pytest.mark.timeout(300)
# The documents the samples come from are not part of the project, and are not always there.
__test__ = SEEDS.is_dir()

ADDRESS = "169.254.169.254"
FENCE = re.compile(r"^```(\w*) *\n(.*?)^``` *$", re.MULTILINE | re.DOTALL)
NAMESPACES = ("System", "System.Collections.Generic", "System.Net", "Newtonsoft.Json")


def read_samples(language: str, *, having: str = "") -> dict[str, str]:
    """Return each different sample in *language* and the document it is in."""
    samples: dict[str, str] = {}
    for document in sorted(SEEDS.glob("*.txt")):
        blocks = FENCE.findall(document.read_text(encoding="utf-8"))
        texts = [text for marked, text in blocks if marked == language and having in text]
        assert texts, f"{document.name} has no sample in {language or having}"
        samples.setdefault("".join(texts), document.stem[:3])
    return samples


def edit(sample: str, changes: Mapping[str, str]) -> str:
    """Return *sample* with each of *changes* made; each has to be needed."""
    for old, new in changes.items():
        assert old in sample, f"{old!r} is not in the sample"
        sample = sample.replace(old, new)
    return sample


def each_of(samples: Mapping[str, str]) -> Callable[[Callable[..., None]], Callable[..., None]]:
    return pytest.mark.parametrize("sample", samples.keys(), ids=samples.values())


@each_of(read_samples("", having="curl"))
def test_curl_sample_sees_and_approves(sample: str, server: Server) -> None:
    event = server.restart(THIS_HOST)
    get, post = (edit(line, {ADDRESS: server.metadata}) for line in sample.splitlines())
    printed_id = re.findall(r'"EventId": "([^"]+)"', post)[0]

    before = run(*quietly(get))
    answer = run(*quietly(edit(post, {printed_id: event["event_id"].lower()})))
    server.await_start(event)
    after = run(*quietly(get))

    assert '"EventStatus":"Scheduled"' in before
    assert answer == ""
    assert '"EventStatus":"Started"' in after


@each_of(read_samples("csharp"))
def test_csharp_sample_approves_what_it_sees(sample: str, server: Server, tmp_path: Path) -> None:
    source = tmp_path / "Sample.cs"
    changes = {
        ADDRESS: server.metadata,
        "GetDocument": "GetScheduledEvents",
        "CloudControlEvent event in": "CloudControlEvent @event in",
        "StartRequest(event.": "StartRequest(@event.",
        "while (true)": "for (int round = 0; round < 1; round++)",
        "Console.Clear();": "",
    }
    usings = "".join(f"using {namespace};\n" for namespace in NAMESPACES)
    source.write_text(usings + edit(sample, changes), encoding="utf-8")
    program = compile_csharp(source, tmp_path)
    event = server.restart(THIS_HOST)

    first = run("mono", program, stdin="\n\n")
    server.await_start(event)
    second = run("mono", program, stdin="\n\n")
    server.let_impact_end()
    third = run("mono", program, stdin="\n\n")

    assert f'"StartRequests":[{{"EventId":"{event["event_id"]}"}}]' in first
    assert event["event_id"] in second, "it approves Started events too"
    assert event["event_id"] not in third


@pytest.mark.parametrize("python", find_pythons())
@each_of(read_samples("python"))
def test_python_sample_tells_what_is_coming(
    sample: str, python: str, server: Server, tmp_path: Path
) -> None:
    """It looks for its own host name among the resources, and approves nothing."""
    program = tmp_path / "sample.py"
    changes = {ADDRESS: server.metadata, "+ eventype +": "+ eventtype +"}
    if python == "python3":
        changes["import urllib2"] = "import urllib.request as urllib2"
    text = edit(sample, changes)
    if python == "python3":
        text = re.sub(r"^( *)print (.*)$", r"\1print(\2)", text, flags=re.MULTILINE)
    program.write_text(text, encoding="utf-8")
    event = server.restart(THIS_HOST)

    before = run(*find_pythons()[python], program)
    server.call("POST", f"events/{event['event_id']}/approve")
    server.await_start(event)
    after = run(*find_pythons()[python], program)
    server.let_impact_end()
    in_the_end = run(*find_pythons()[python], program)

    assert "Reboot" in before
    assert event["not_before"] in before
    assert after == before.replace(event["not_before"], "")
    assert in_the_end == ""


def quietly(line: str) -> Iterable[str]:
    """Return the words of a curl command that fails when it is refused, and shows no progress."""
    command, *words = shlex.split(line)
    return (command, "-sSf", *words)
