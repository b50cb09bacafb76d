"""`forewarn emulator`, as far as it comes before there is a server."""

from collections.abc import Callable
from pathlib import Path

from typer.testing import Result

Run = Callable[..., Result]
NETWORK = Path("/proc/self/ns/net")


def test_mistake_in_the_fleet_is_told_before_this_process_leaves_its_network(
    run: Run, tmp_path: Path
) -> None:
    (tmp_path / "broken.toml").write_text("[[virtual_machine]]\n")
    before = NETWORK.readlink()

    missing = run("emulator", "--netns", "--fleet", "nowhere.toml", "--", "true")
    broken = run("emulator", "--netns", "--fleet", str(tmp_path / "broken.toml"), "--", "true")

    assert (missing.exit_code, broken.exit_code) == (1, 1)
    assert NETWORK.readlink() == before
