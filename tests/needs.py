"""Programs and features of a machine that tests need; a test without them is skipped, and says so.

With `fold_skip`, skips for the same reason are one line of the summary, however many tests and
files they are in.
"""

import os
import shutil
import socket
import subprocess
from functools import cache
from importlib.util import find_spec
from pathlib import Path
from typing import NoReturn

import pytest

PATH = f"{os.defpath}:/usr/sbin:/sbin"
"""The default search path, and the folders of system programs."""
HERE = Path(__file__)


def fold_skip(report: pytest.TestReport, call: pytest.CallInfo[None]) -> None:
    """Report a skip of this module here, not at its test: pytest folds skips of one place."""
    if report.skipped and call.excinfo is not None and isinstance(report.longrepr, tuple):
        lines = [entry.lineno for entry in call.excinfo.traceback if entry.path == HERE]
        if lines:
            report.longrepr = (str(HERE), lines[-1] + 1, report.longrepr[2])


def need(*programs: str | Path, path: str | None = None) -> None:
    """Skip the test unless *programs* are installed, in *path* or in that of the environment."""
    for program in programs:
        if shutil.which(program, path=path) is None:
            skip_without(Path(program).name)


def find_program(program: str) -> str:
    """Return the path of *program*; skip the test if it is not installed."""
    found = shutil.which(program) or shutil.which(program, path=PATH)
    return found or skip_without(program)


def need_libvirt() -> None:
    """Skip the test unless libvirt's module for Python is installed."""
    if find_spec("libvirt") is None:
        skip_without("libvirt-python")


def skip_without(name: str) -> NoReturn:
    """Skip the test because *name* is not installed."""
    pytest.skip(say_missing(name))


def say_missing(name: str) -> str:
    """Return the reason of a test that is skipped because *name* is not installed."""
    return f"{name} is not installed; run make test-needs"


def need_root(why: str) -> None:
    """Skip the test unless root runs it; *why* is what only root can do."""
    if os.geteuid() != 0:
        pytest.skip(f"only root can {why}; run the tests as root")


def need_namespaces(*flags: str) -> None:
    """Skip the test unless this user can make namespaces: *flags* are those of unshare."""
    command = [find_program("unshare"), *flags, "true"]
    if subprocess.run(command, check=False, capture_output=True).returncode != 0:
        pytest.skip(f"this machine does not permit unshare {' '.join(flags)}; run as root")


def need_ipv6() -> None:
    """Skip the test unless this machine has an IPv6 loopback address."""
    if not has_ipv6():
        pytest.skip("IPv6 is disabled: this machine has no address ::1")


@cache
def has_ipv6() -> bool:
    """Tell whether this machine has an IPv6 loopback address."""
    try:
        with socket.socket(socket.AF_INET6) as probe:
            probe.bind(("::1", 0))
    except OSError:
        return False
    return True
