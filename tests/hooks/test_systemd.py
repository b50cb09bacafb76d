"""The hook for units against a systemd of its own: that of a user, which nobody has to boot."""

import subprocess
from collections.abc import Generator, Mapping
from dataclasses import dataclass, replace
from pathlib import Path

import pytest
from tests.e2e.conftest import wait_until
from tests.hooks.conftest import FAILED, PATH, READY, InstalledMaker, need

SECONDS = 45.0
SYSTEMD = Path("/lib/systemd/systemd")

# It wants to believe that the machine was booted with systemd, and control groups it may write to.
SETTING = """
mount -t tmpfs tmpfs /run
mkdir -p /run/systemd/system
mount -t cgroup2 cgroup2 /sys/fs/cgroup
exec "$@"
"""
IN_NAMESPACES = (
    "unshare",
    "--mount",
    "--cgroup",
    "--propagation=private",
    "sh",
    "-ec",
    SETTING,
    "-",
)


@dataclass(frozen=True, slots=True)
class Manager:
    folder: Path

    @property
    def variables(self) -> Mapping[str, str]:
        return {"PATH": PATH, "XDG_RUNTIME_DIR": str(self.folder)}

    def add(self, *units: str) -> None:
        for unit in units:
            file = self.folder / "systemd" / "user" / unit
            file.parent.mkdir(parents=True, exist_ok=True)
            file.write_text("[Service]\nExecStart=/bin/sleep 600\n", encoding="ascii")

    def order(self, *command: str) -> str:
        words = ("systemctl", "--user", *command)
        done = subprocess.run(
            words, env=self.variables, capture_output=True, text=True, timeout=SECONDS, check=False
        )
        return done.stdout.strip()

    def running(self) -> list[str]:
        """Return the units that run, those first that were started first."""
        listed = self.order("list-units", "--type=service", "--state=active", "--plain", "--quiet")
        units = [line.split()[0] for line in listed.splitlines()]
        return sorted(units, key=self._started_at)

    def _started_at(self, unit: str) -> int:
        name = "ActiveEnterTimestampMonotonic"
        return int(self.order("show", "--property", name, "--value", unit))


@pytest.fixture
def manager(tmp_path_factory: pytest.TempPathFactory) -> Generator[Manager]:
    need("systemctl", "unshare", str(SYSTEMD))
    tried = subprocess.run([*IN_NAMESPACES, "true"], capture_output=True, check=False, timeout=20)
    if tried.returncode != 0:
        pytest.skip("this machine lets us mount no control groups; run as root")
    manager = Manager(tmp_path_factory.mktemp("systemd"))
    manager.add("app.service", "worker.service", "idle.service")
    with (manager.folder / "log").open("wb") as log:
        process = subprocess.Popen(
            [*IN_NAMESPACES, SYSTEMD, "--user"], env=manager.variables, stdout=log, stderr=log
        )
    try:
        wait_until(lambda: "LoadState=loaded" in manager.order("show", "app.service"), "none", 20)
        manager.order("start", "app.service", "worker.service")
        yield manager
    finally:
        manager.order("stop", "app.service", "worker.service", "idle.service")
        process.terminate()
        process.wait(SECONDS)


def test_units_are_stopped_and_those_that_ran_started_in_the_other_order(
    manager: Manager, install: InstalledMaker
) -> None:
    units = "app.service worker.service idle.service"
    hook = install("systemd-units", UNITS=units, SYSTEMCTL="systemctl --user")
    hook = replace(hook, environment=manager.variables)

    for phase in ("scheduled", "scheduled"):
        assert hook.run(phase).status == READY
        assert manager.running() == []
    for phase in ("recovered", "recovered"):
        assert hook.run(phase).status == READY
        assert manager.running() == ["worker.service", "app.service"]


def test_unit_that_boots_by_itself_is_not_in_the_way(
    manager: Manager, install: InstalledMaker
) -> None:
    hook = install("systemd-units", UNITS="app.service", SYSTEMCTL="systemctl --user")
    hook = replace(hook, environment=manager.variables)
    hook.run("scheduled")
    manager.order("start", "app.service")

    assert hook.run("recovered").status == READY

    assert "app.service" in manager.running()


def test_unknown_unit_is_a_failure(manager: Manager, install: InstalledMaker) -> None:
    hook = install("systemd-units", UNITS="none.service", SYSTEMCTL="systemctl --user")
    hook = replace(hook, environment=manager.variables)

    ended = hook.run("scheduled")

    assert ended.status == FAILED
    assert "there is no unit none.service" in ended.said
