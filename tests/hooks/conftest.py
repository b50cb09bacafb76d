"""A hook as it is installed: a symlink in the folder of a phase, with settings and state."""

import subprocess
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from pathlib import Path

import pytest
from tests import needs

PATH = needs.PATH
HOOKS = Path(__file__).parents[2] / "contrib" / "hooks"
STAND_INS = Path(__file__).parent / "stand_ins"
HOOK_SECONDS = 30
EVENT_ID = "C7061BAC-AFDC-4513-B24B-AA5F13A16123"
OTHER_ID = "C7061BAC-AFDC-4513-B24B-AA5F13A16124"
READY, FAILED, NOT_YET = 0, 1, 75


@dataclass(frozen=True, slots=True)
class Ended:
    status: int
    said: str


@dataclass(frozen=True, slots=True, kw_only=True)
class Installed:
    """A hook with *settings*; programs are looked for in *path* before all others."""

    name: str
    folder: Path
    settings: dict[str, str]
    path: str = PATH
    environment: Mapping[str, str] = field(default_factory=dict)

    def __post_init__(self) -> None:
        need("flock")
        (self.folder / "conf").mkdir(exist_ok=True)
        lines = [f"{name}='{value}'\n" for name, value in self.settings.items()]
        (self.folder / "conf" / f"{self.name}.conf").write_text("".join(lines), encoding="ascii")

    def install(self, phase: str, hooks_dir: Path) -> Path:
        link = hooks_dir / f"{phase}.d" / f"10-{self.name}"
        if not link.is_symlink():
            link.parent.mkdir(parents=True, exist_ok=True)
            link.symlink_to(HOOKS / self.name)
        return link

    @property
    def variables(self) -> dict[str, str]:
        """What has to be in its environment."""
        return {
            "PATH": self.path,
            "FOREWARN_HOOKS_CONF": str(self.folder / "conf"),
            "FOREWARN_HOOKS_STATE": str(self.folder / "state"),
            **self.environment,
        }

    def run(self, phase: str, event_id: str = EVENT_ID) -> Ended:
        """Run it as the agent does, and see to it that it says one line."""
        event = {"EVENT_ID": event_id, "EVENT_TYPE": "Reboot", "EVENT_PHASE": phase}
        done = subprocess.run(
            [self.install(phase, self.folder / "hooks.d")],
            env={**self.variables, **event},
            stdin=subprocess.DEVNULL,
            stdout=subprocess.PIPE,
            stderr=subprocess.STDOUT,
            text=True,
            timeout=HOOK_SECONDS,
            check=False,
        )
        assert done.stdout.splitlines()[-1].startswith(f"{self.name}: "), done.stdout
        return Ended(done.returncode, done.stdout)


InstalledMaker = Callable[..., Installed]


@pytest.fixture
def install(tmp_path: Path) -> InstalledMaker:
    """Return a function that installs a hook of contrib with settings."""

    def make(name: str, **settings: str) -> Installed:
        return Installed(name=name, folder=tmp_path, settings=settings)

    return make


def need(*programs: str) -> None:
    """Skip the test unless hooks find *programs*."""
    needs.need(*programs, path=PATH)
