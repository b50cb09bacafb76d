"""The image: what is in it, and that it serves without root on a read-only file system."""

import json
from pathlib import Path

from tests.docs.blocks import ROOT, Block
from tests.image.conftest import IMAGE, Podman
from tests.ports import free_port

POLL = """
import sys
from urllib.request import Request, urlopen

url = "http://127.0.0.1:8169/vm/web-0/metadata/scheduledevents?api-version=2020-07-01"
sys.stdout.write(urlopen(Request(url, headers={"Metadata": "true"}), timeout=10).read().decode())
"""
AGENT = Path(__file__).parents[1] / "conformance" / "kit" / "agent.toml"
RUN_AGENT = (
    "STATE_DIRECTORY=$FOREWARN_CONFORMANCE_FOLDER exec forewarn-agent run --config /agent.toml"
)
FIND_TOOLS = """
for each in cc gcc make ld git; do command -v $each; done
ls -d /build /opt/forewarn/bin/pip* /run/pip.pem 2> /dev/null
"""


def run_shell(podman: Podman, script: str) -> str:
    return podman(
        "run", "--rm", "--read-only", "--entrypoint", "sh", IMAGE, "-c", f"{script}\ntrue"
    )


def test_machine_in_another_container_sees_an_event(podman: Podman, blocks: list[Block]) -> None:
    build, start = blocks
    (_, *run), (_, *add) = start.commands
    server = run[run.index("--name") + 1]
    try:
        podman(*(word.replace("8169:8169", f"{free_port()}:8169") for word in run))
        podman.await_health(server)
        podman(*add)
        podman("exec", server, "forewarn", "vm", "restart", "web-0")

        network = f"--network=container:{server}"
        seen = podman("run", "--rm", network, "--entrypoint", "python3", IMAGE, "-c", POLL)
    finally:
        podman("rm", "--force", "--volumes", "--time", "3", server)

    # `make image` has built it, with buildah.
    docker, make = (" ".join(words) for words in build.commands)
    assert docker == f"docker build --file Containerfile --tag {IMAGE} ."
    assert (ROOT / "Containerfile").is_file()
    assert make == "make image"

    (event,) = json.loads(seen)["Events"]
    assert (event["EventType"], event["Resources"]) == ("Reboot", ["web-0"])


def test_nothing_can_be_written_but_the_state(podman: Podman, server: str) -> None:
    attempts = (
        "for each in / /opt/forewarn /tmp .; do touch $each/x 2> /dev/null && echo $each; done"
    )

    assert podman("exec", server, "sh", "-c", f"{attempts}\ntrue").split() == ["."]
    assert podman("exec", server, "pwd").strip() == "/var/lib/forewarn"


def test_nobody_is_root(podman: Podman, server: str) -> None:
    assert podman("exec", server, "sh", "-c", "id -u; id -g").split() == ["10001", "10001"]
    assert run_shell(podman, "id -u").strip() == "10001"


def test_what_was_needed_to_build_stays_behind(podman: Podman) -> None:
    assert run_shell(podman, FIND_TOOLS) == ""
    assert run_shell(podman, "command -v sh").strip()


def test_container_without_a_server_is_not_healthy(podman: Podman) -> None:
    container = podman("run", "--detach", "--entrypoint", "sleep", IMAGE, "60").strip()
    try:
        assert not podman.is_healthy(container)
    finally:
        podman("rm", "--force", "--volumes", "--time", "0", container)


def test_container_stops_when_told_and_goes_on_where_it_was(podman: Podman, server: str) -> None:
    podman("exec", server, "forewarn", "vm", "add", "web-0")

    podman("stop", "--time", "20", server)
    ended = podman("inspect", "--format", "{{.State.ExitCode}}", server).strip()
    podman("start", server)
    podman.await_health(server)

    assert ended == "0"
    assert "web-0" in podman("exec", server, "forewarn", "vm", "list")


def test_handler_is_graded_inside(podman: Podman) -> None:
    report = podman(
        *("run", "--rm", "--read-only", f"--volume={AGENT}:/agent.toml:ro", IMAGE),
        *("conformance", "run", "--only", "own-event", "--output", "json"),
        *("--", "sh", "-c", RUN_AGENT),
    )

    assert json.loads(report)["score"] == 100
