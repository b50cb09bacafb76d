"""`forewarn demo` as a stranger sees it: in a terminal, in a pipe, and when they leave."""

import contextlib
import fcntl
import os
import pty
import re
import select
import shlex
import signal
import struct
import subprocess
import termios
import time
from collections.abc import Callable, Generator, Mapping
from dataclasses import dataclass
from pathlib import Path
from tempfile import TemporaryDirectory
from urllib.error import HTTPError
from urllib.request import Request, urlopen

import pytest
from tests.docs.blocks import ROOT, Block, read_commands
from tests.e2e.conftest import FOREWARN, ServerMaker, wait_until

pytestmark = pytest.mark.timeout(300)

SPEED = "300"
MAKEFILE = ROOT / "Makefile"
READY_SECONDS = 120.0
"""Ten times what is promised: machines that run tests are busy."""
LEAVE_SECONDS = 45.0
ROLL_OUT_SECONDS = 120.0
NEW_FRAME = re.compile(r"(?:\x1b\[1A\x1b\[2K)+")
CONTROL_SEQUENCE = re.compile(r"\x1b\[[0-9;?]*[A-Za-z]")
LINK = re.compile(r"(http://127\.0\.0\.1:\d+)/login#(fw_[\w-]{43})")


@pytest.fixture
def temporary() -> Generator[Path]:
    """Return the folder for temporary files of a demo, which are to be gone after it.

    Its name is short, as that of the usual folder is, to fit into a line.
    """
    with TemporaryDirectory(prefix="t") as folder:
        yield Path(folder)


@pytest.fixture
def surroundings(environment: Mapping[str, str], temporary: Path) -> dict[str, str]:
    path = f"{FOREWARN.parent}:{os.defpath}"
    return {**environment, "PATH": path, "TMPDIR": str(temporary), "TERM": "xterm-256color"}


Demo = Callable[..., "subprocess.Popen[str]"]


@pytest.fixture
def start_demo(surroundings: dict[str, str]) -> Generator[Demo]:
    """Return a function that starts a demo in a pipe; it is killed after the test."""
    started: list[subprocess.Popen[str]] = []

    def start(*flags: str) -> subprocess.Popen[str]:
        process = subprocess.Popen(
            [FOREWARN, "demo", *flags],
            env=surroundings,
            stdout=subprocess.PIPE,
            stderr=subprocess.PIPE,
            text=True,
        )
        started.append(process)
        return process

    yield start
    for process in started:
        process.kill()
        process.communicate()


@dataclass(slots=True)
class Terminal:
    """A demo in a terminal, and what was written on it so far."""

    process: subprocess.Popen[bytes]
    here: int
    seen: str = ""

    def read(self) -> None:
        # At its end Linux says that the other side has closed, as an error.
        with contextlib.suppress(OSError):
            if select.select([self.here], [], [], 0.1)[0]:
                self.seen += os.read(self.here, 65536).decode(errors="replace")

    def wait_for(self, text: str, seconds: float) -> None:
        """Return when *text* is on the terminal."""

        def is_there() -> bool:
            self.read()
            return text in self.seen

        wait_until(is_there, f"{text!r} is not on the terminal", seconds)

    def outlasts(self, other: subprocess.Popen[str]) -> bool:
        """Go on looking at the terminal, and tell whether *other* has ended."""
        self.read()
        return other.poll() is not None

    @property
    def frame(self) -> list[str]:
        """The lines of the last frame, without colours."""
        return CONTROL_SEQUENCE.sub("", NEW_FRAME.split(self.seen)[-1]).splitlines()

    def press(self, key: bytes) -> None:
        """Press *key*."""
        os.write(self.here, key)

    def interrupt(self) -> None:
        """Press Ctrl-C."""
        self.press(b"\x03")

    def leave(self) -> int:
        """Return what the demo ends with, soon."""

        def has_ended() -> bool:
            if not self.is_closed:
                self.read()
            return self.process.poll() is not None

        wait_until(has_ended, "the demo goes on", LEAVE_SECONDS)
        return int(self.process.returncode)

    def close(self) -> None:
        """Close the window."""
        if not self.is_closed:
            os.close(self.here)
        self.here = -1

    @property
    def is_closed(self) -> bool:
        return self.here < 0


OpenTerminal = Callable[..., Terminal]


@pytest.fixture
def open_terminal(surroundings: dict[str, str]) -> Generator[OpenTerminal]:
    """Return a function that starts a demo in a terminal of some size."""
    opened: list[Terminal] = []

    def open_(columns: int, lines: int, *flags: str) -> Terminal:
        here, there = pty.openpty()
        fcntl.ioctl(there, termios.TIOCSWINSZ, struct.pack("HHHH", lines, columns, 0, 0))
        # In a session of its own, or nobody would hear of Ctrl-C.
        command = ["setsid", "--ctty", str(FOREWARN), "demo", *flags]
        process = subprocess.Popen(
            command, env=surroundings, stdin=there, stdout=there, stderr=there
        )
        os.close(there)
        opened.append(Terminal(process, here))
        return opened[-1]

    yield open_
    for terminal in opened:
        terminal.process.kill()
        terminal.process.wait()
        terminal.close()


@dataclass(frozen=True, slots=True, kw_only=True)
class Told:
    """What a demo that nobody disturbs prints in a pipe, and leaves behind."""

    story: str
    errors: str
    left_behind: list[Path]


@pytest.fixture(scope="module")
def told(environment: Mapping[str, str]) -> Told:
    with TemporaryDirectory() as folder:
        surroundings = {**environment, "TMPDIR": folder}
        done = subprocess.run(
            [FOREWARN, "demo"],
            env=surroundings,
            capture_output=True,
            text=True,
            timeout=ROLL_OUT_SECONDS,
            check=True,
        )
        return Told(story=done.stdout, errors=done.stderr, left_behind=list(Path(folder).iterdir()))


def test_pipe_gets_the_whole_story_and_the_demo_ends_by_itself(told: Told) -> None:
    first, console, *lines = told.story.splitlines()

    assert told.errors == ""
    assert first == "Starting a service and its fleet ..."
    assert LINK.search(console)
    assert all(re.match(r"\d\d:\d\d:\d\d  \S", line) for line in lines), told.story
    assert "kvm-4: Freeze succeeded after" in told.story
    assert ". 3 of 4 hosts started early: all their machines approved." in lines[-2]
    assert told.left_behind == []


def test_service_that_drains_loses_no_request_and_the_other_does(told: Told) -> None:
    lost = re.search(r"Requests lost: web (\d+) of (\d+), cart (\d+) of (\d+)\.$", told.story)

    assert lost is not None, told.story
    web, sent_to_web, cart, sent_to_cart = map(int, lost.groups())
    assert web == 0 < cart
    assert sent_to_web > 100
    assert sent_to_cart > 100


def test_readme_shows_what_the_demo_prints(told: Told, blocks: list[Block]) -> None:
    made, piped, of_home = blocks
    ((command, shown),) = read_commands(piped.text)
    claimed = [line for line in shown if line.strip() not in {"", "..."}]
    recipe = re.search(r"^demo:.*\n\t@\$\(BIN\)/(.*)$", MAKEFILE.read_text("utf-8"), re.MULTILINE)
    install, (program, *words) = of_home.commands
    assert recipe
    assert (made.text, command) == ("$ make demo\n", "make demo | cat")
    assert recipe[1].split() == [program, *words] == ["forewarn", "demo"]
    assert install == ["pip", "install", "forewarn[server]"]

    printed = iter(timeless(told.story).splitlines())

    for line in claimed:
        assert timeless(line) in printed, f"the demo no longer prints, in this order: {line}"


def timeless(text: str) -> str:
    """Return *text* without what differs from run to run: times, durations, numbers and links."""
    text = re.sub(r"\d\d:\d\d:\d\d", "TIME", text)
    text = re.sub(r"[0-9.]+ s\b", "DURATION", text)
    text = re.sub(r"127\.0\.0\.1:\d+", "ADDRESS", text)
    text = re.sub(r"web 0 of \d+, cart \d+ of \d+", "NONE AND SOME", text)
    return re.sub(r"#fw_[\w…-]+", "#CODE", text)


def test_demo_is_ready_soon(start_demo: Demo) -> None:
    began = time.monotonic()

    process = start_demo()

    assert process.stdout is not None
    process.stdout.readline()
    assert LINK.search(process.stdout.readline())
    assert time.monotonic() - began < READY_SECONDS


def read_suggestions(terminal: Terminal) -> list[str]:
    """Return the commands that the demo tells to try when its roll-out is over."""
    terminal.wait_for("Your turn", ROLL_OUT_SECONDS)
    terminal.wait_for("--vm db --speed 60", LEAVE_SECONDS)
    terminal.wait_for("Requests lost", LEAVE_SECONDS)
    return [line.rstrip() for line in terminal.frame if line.startswith(("  export", "  fore"))]


def type_elsewhere(
    commands: str, terminal: Terminal, surroundings: dict[str, str]
) -> tuple[subprocess.Popen[str], str]:
    """Run *commands*, which reboot something, in another shell; return it and what it printed."""
    script = ["sh", "-ec", commands]
    with subprocess.Popen(script, env=surroundings, stdout=subprocess.PIPE, text=True) as shell:
        # Somebody has to look at the terminal meanwhile: a full one stops the demo.
        terminal.wait_for("web-0: Reboot starts", READY_SECONDS)
        wait_until(lambda: terminal.outlasts(shell), "a command hangs", READY_SECONDS)
        typed, _ = shell.communicate()
    return shell, typed


def sign_in(link: str) -> None:
    """Do what a browser does with *link*, which may be refused."""
    found = LINK.fullmatch(link)
    assert found is not None, link
    headers = {"Origin": found[1], "X-Sign-In-Code": found[2]}
    request = Request(f"{found[1]}/login", headers=headers, method="POST")
    urlopen(request, timeout=READY_SECONDS).close()


def test_ending_stays_on_a_small_terminal_with_what_to_try_next(
    open_terminal: OpenTerminal, surroundings: dict[str, str]
) -> None:
    terminal = open_terminal(80, 24, "--speed", SPEED)
    commands = read_suggestions(terminal)

    shell, typed = type_elsewhere("\n".join(commands) + " --no-wait", terminal, surroundings)
    terminal.interrupt()

    assert terminal.leave() == 0
    assert shell.returncode == 0
    assert "of live-migration" in typed
    assert len(terminal.frame) < 24  # a line is left for the prompt of the shell
    assert all(len(line) <= 80 for line in terminal.frame)
    assert LINK.fullmatch(terminal.frame[1])
    assert terminal.frame[2].startswith("Freeze completed · host 4 of 4 · 16 machines · ")
    assert terminal.frame[3].startswith("$ forewarn maintenance start --type Freeze")
    assert "Done in " in terminal.frame[10]
    assert "Traceback" not in terminal.seen


def test_one_key_approves_for_the_machine_that_says_nothing(open_terminal: OpenTerminal) -> None:
    terminal = open_terminal(80, 24, "--speed", "20")
    terminal.wait_for("Press 'a'", ROLL_OUT_SECONDS)

    terminal.press(b"a")

    terminal.wait_for("An operator approves for batch_1", READY_SECONDS)
    terminal.wait_for("early: every machine has approved", READY_SECONDS)
    terminal.interrupt()
    assert terminal.leave() == 0


def test_link_to_the_console_is_replaced_once_it_was_used(open_terminal: OpenTerminal) -> None:
    terminal = open_terminal(100, 30)
    terminal.wait_for("Rolling Freeze", READY_SECONDS)
    (link,) = {found[0] for found in LINK.finditer(terminal.seen)}

    sign_in(link)

    def is_replaced() -> bool:
        terminal.read()
        return {found[0] for found in LINK.finditer(terminal.seen)} > {link}

    wait_until(is_replaced, "there is no other link", READY_SECONDS)
    with pytest.raises(HTTPError, match="403"):
        sign_in(link)
    terminal.interrupt()
    assert terminal.leave() == 0


def test_warnings_are_seen_above_the_frame(
    open_terminal: OpenTerminal, surroundings: dict[str, str]
) -> None:
    terminal = open_terminal(140, 40, "--speed", SPEED)
    exports = [line for line in read_suggestions(terminal) if line.startswith("  export")]
    faults = ["forewarn fault set web-0 status --status 503 --times 2", "forewarn vm restart web-0"]

    type_elsewhere("\n".join((*exports, *faults)), terminal, surroundings)
    terminal.wait_for("metadata_unavailable", READY_SECONDS)
    terminal.interrupt()

    assert terminal.leave() == 0


@pytest.mark.parametrize("moment", ["Starting", "/login#fw_", "announced", "starts"])
def test_ctrl_c_leaves_nothing_behind(
    open_terminal: OpenTerminal, temporary: Path, moment: str
) -> None:
    terminal = open_terminal(100, 30)
    terminal.wait_for(moment, READY_SECONDS)

    terminal.interrupt()

    assert terminal.leave() == 0
    assert "Traceback" not in terminal.seen
    assert list(temporary.iterdir()) == []


def test_closing_the_window_leaves_nothing_behind(
    open_terminal: OpenTerminal, temporary: Path
) -> None:
    terminal = open_terminal(100, 30)
    terminal.wait_for("announced", READY_SECONDS)

    terminal.close()

    assert terminal.leave() == 0
    assert list(temporary.iterdir()) == []


def test_ctrl_c_in_a_pipe_is_no_failure(start_demo: Demo, temporary: Path) -> None:
    process = start_demo()
    assert process.stdout is not None
    while "drained" not in process.stdout.readline():
        assert process.poll() is None

    process.send_signal(signal.SIGINT)
    _, said = process.communicate(timeout=LEAVE_SECONDS)

    assert (process.returncode, said) == (0, "")
    assert list(temporary.iterdir()) == []


@pytest.mark.parametrize("number", [signal.SIGTERM, signal.SIGHUP])
def test_signal_at_the_start_leaves_nothing_behind(
    start_demo: Demo, temporary: Path, number: int
) -> None:
    process = start_demo()
    wait_until(lambda: any(temporary.iterdir()), "there is no folder", READY_SECONDS, pause=0.001)

    process.send_signal(number)
    _, said = process.communicate(timeout=LEAVE_SECONDS)

    assert (process.returncode, said) == (128 + number, "")
    assert list(temporary.iterdir()) == []


def test_closed_pipe_ends_the_demo(start_demo: Demo, temporary: Path) -> None:
    process = start_demo("--speed", SPEED)
    assert process.stdout is not None
    process.stdout.readline()
    process.stdout.close()

    assert process.wait(READY_SECONDS) == 0
    assert process.stderr is not None
    assert process.stderr.read() == ""
    assert list(temporary.iterdir()) == []


def test_two_demos_at_once_take_different_ports(start_demo: Demo) -> None:
    addresses = []
    for process in (start_demo(), start_demo()):
        assert process.stdout is not None
        process.stdout.readline()
        addresses.append(re.findall(r"127\.0\.0\.1:\d+", process.stdout.readline()))

    assert all(addresses)
    assert addresses[0] != addresses[1]


def test_kept_demo_can_be_served_again(
    start_demo: Demo, make_server: ServerMaker, tmp_path: Path
) -> None:
    kept = tmp_path / "new" / "kept"

    story, said = start_demo("--speed", SPEED, "--keep", str(kept)).communicate(
        timeout=ROLL_OUT_SECONDS
    )

    assert said == ""
    _, _, *flags = shlex.split(story.splitlines()[-1])
    server = make_server(*flags, database=kept / "forewarn.db")
    server.start()
    history = server.command("event", "history")["events"]
    assert [event["host"] for event in history].count("kvm-2") == 4
    assert {event["outcome"] for event in history} == {"succeeded"}
    assert server.stop() == 0


def test_folder_of_another_clock_is_refused(
    start_demo: Demo, make_server: ServerMaker, tmp_path: Path
) -> None:
    server = make_server("--clock", "virtual", database=tmp_path / "forewarn.db")
    server.fleet = server.fleet.rename(tmp_path / "other.toml")
    server.start()
    assert server.stop() == 0

    process = start_demo("--keep", str(tmp_path))
    _, said = process.communicate(timeout=READY_SECONDS)

    assert process.returncode == 1
    assert said.startswith("forewarn: ")
    assert "uses the virtual clock" in said


def test_somebody_elses_fleet_file_is_not_overwritten(start_demo: Demo, tmp_path: Path) -> None:
    (tmp_path / "fleet.toml").write_text("mine", encoding="utf-8")

    process = start_demo("--keep", str(tmp_path))
    _, said = process.communicate(timeout=READY_SECONDS)

    assert process.returncode == 4
    assert "is not the fleet of the demo" in said
    assert (tmp_path / "fleet.toml").read_text(encoding="utf-8") == "mine"
