"""A server on a machine whose clock jumps."""

import sys
from datetime import datetime, timedelta
from pathlib import Path
from typing import Any

from tests.e2e.conftest import ANSWER_SECONDS, Server, ServerMaker, wait_until
from tests.e2e.replicas import make_replica

from forewarn.clocks import SystemClock

DRIVER = Path(__file__).with_name("jumping_clock.py")


def finding(server: Server) -> Any:
    answer = server.command("doctor", "--remote")
    (found,) = (each for each in answer["findings"] if each["check"] == "clock jumps")
    return found


def test_jump_is_logged_counted_and_shown_by_doctor(
    make_server: ServerMaker, tmp_path: Path
) -> None:
    ahead = tmp_path / "ahead"
    ahead.write_text("-7200", "ascii")
    server = make_server(prefix=(sys.executable, str(DRIVER), str(ahead)))
    server.start()
    before = finding(server)

    ahead.write_text("0", "ascii")
    wait_until(lambda: "clock_jumped" in server.said(), "no jump was logged", ANSWER_SECONDS)
    after = finding(server)

    assert (before["verdict"], after["verdict"]) == ("ok", "warn")
    assert after["sentence"].startswith("The server's clock jumped forward by 2h at ")
    assert after["sentence"].endswith(" GMT.")
    assert server.said().count("clock_jumped") == 1
    (jump,) = server.operate("GET", "clock").json()["jumps"]
    assert abs(jump["seconds"] - 7200) < 1


def test_replica_measures_real_time_by_the_clock_of_its_database(
    make_server: ServerMaker, postgres_url: str, tmp_path: Path
) -> None:
    """Its own may be ahead of that of a replica whose scripts it waits for."""
    ahead = tmp_path / "ahead"
    ahead.write_text("7200", "ascii")
    prefix = (sys.executable, str(DRIVER), str(ahead))
    server = make_replica(make_server, postgres_url, tmp_path, 0, prefix=prefix)
    server.start()
    server.command("pause")

    (entry,) = server.operate("GET", "audit?action=pause").json()["audit"]

    off = datetime.fromisoformat(entry["at"]) - SystemClock().now()
    assert abs(off) < timedelta(minutes=1)
