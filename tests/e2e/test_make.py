"""`make demo` on a machine that cannot install what the demo needs."""

import hashlib
import os
import re
import shutil
import subprocess
import sys
import zipfile
from collections.abc import Generator
from contextlib import contextmanager
from functools import partial
from http.server import SimpleHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path
from threading import Thread

import pytest
from tests.e2e.conftest import STOP_SECONDS
from tests.needs import find_program
from tests.ports import free_port

ROOT = Path(__file__).parents[2]
UV = Path(sys.executable).with_name("uv")
SENTENCE = (
    "The packages of forewarn cannot be installed, because the package index cannot be reached: "
    "connect this machine to it, or set PIP_INDEX_URL and UV_DEFAULT_INDEX to one that it can "
    "reach, and run make again."
)
pytestmark = pytest.mark.timeout(180)


def make_demo(folder: Path, index: str, *, has_uv: bool) -> "subprocess.CompletedProcess[str]":
    """Run `make demo` in a copy, in an empty home, with a package index that is *index*."""
    checkout, home, programs = (folder / name for name in ("checkout", "home", "programs"))
    for each in (checkout, home, programs):
        each.mkdir()
    for name in ("Makefile", "pyproject.toml"):
        shutil.copy(ROOT / name, checkout)
    for name in ("requirements", "scripts", "tests"):
        (checkout / name).symlink_to(ROOT / name)
    if has_uv:
        (programs / "uv").symlink_to(UV)
    return subprocess.run(
        [find_program("make"), "demo", f"PYTHON={sys.executable}"],
        cwd=checkout,
        env={
            "HOME": str(home),
            "PATH": f"{programs}:/usr/bin:/bin",
            "PIP_CONFIG_FILE": os.devnull,
            "PIP_INDEX_URL": index,
            "UV_DEFAULT_INDEX": index,
            # Each retry takes longer than the one before.
            "PIP_RETRIES": "1",
            "UV_HTTP_RETRIES": "1",
        },
        capture_output=True,
        text=True,
        timeout=150,
        check=False,
    )


@pytest.mark.parametrize("has_uv", [False, True], ids=["pip", "uv"])
def test_index_that_cannot_be_reached_is_one_sentence(tmp_path: Path, *, has_uv: bool) -> None:
    done = make_demo(tmp_path, f"http://127.0.0.1:{free_port()}/simple", has_uv=has_uv)

    said = [line for line in done.stderr.splitlines() if not line.startswith("make: ***")]
    assert said == [SENTENCE]
    assert done.returncode != 0


@contextmanager
def serving(folder: Path) -> Generator[str]:
    """Serve the files of *folder* as a package index."""
    handler = partial(SimpleHTTPRequestHandler, directory=str(folder))
    with ThreadingHTTPServer(("127.0.0.1", 0), handler) as server:
        thread = Thread(target=server.serve_forever, kwargs={"poll_interval": 0.05})
        thread.start()
        try:
            yield f"http://127.0.0.1:{server.server_port}/simple"
        finally:
            server.shutdown()
            thread.join(STOP_SECONDS)


def test_package_that_is_not_the_pinned_one_is_shown_in_full(tmp_path: Path) -> None:
    pinned = re.match(r"uv==(\S+)", (ROOT / "requirements/uv.txt").read_text("utf-8"))
    assert pinned
    page = tmp_path / "index/simple/uv"
    page.mkdir(parents=True)
    wheel = page / f"uv-{pinned[1]}-py3-none-any.whl"
    with zipfile.ZipFile(wheel, "w") as file:
        file.writestr("uv.py", "")
    (page / "index.html").write_text(f'<a href="{wheel.name}">{wheel.name}</a>', encoding="ascii")

    with serving(tmp_path / "index") as index:
        done = make_demo(tmp_path, index, has_uv=False)

    assert SENTENCE not in done.stderr
    assert "DO NOT MATCH THE HASHES" in done.stderr
    assert hashlib.sha256(wheel.read_bytes()).hexdigest() in done.stderr
    assert done.returncode != 0
