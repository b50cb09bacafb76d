"""A server on a machine whose clock jumps."""

import json
import sys
from datetime import datetime, timedelta
from pathlib import Path
from typing import Any

from tests.e2e.conftest import ANSWER_SECONDS, Server, ServerMaker, wait_until
from tests.e2e.replicas import Trio, make_replica

from forewarn.clocks import SystemClock

DRIVER = Path(__file__).with_name("jumping_clock.py")


def finding(server: Server, check: str = "clock jumps") -> Any:
    answer = json.loads(server.try_command("doctor", "--remote", "-o", "json").stdout)
    (found,) = (each for each in answer["findings"] if each["check"] == check)
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


def test_leader_whose_clock_jumps_ahead_lets_another_lead_and_starts_nothing_early(
    make_server: ServerMaker, postgres_url: str, tmp_path: Path
) -> None:
    ahead = tmp_path / "ahead"
    set_ahead(ahead, 0)
    prefix = (sys.executable, str(DRIVER), str(ahead))
    one, two = (
        make_replica(make_server, postgres_url, tmp_path, number, **more)
        for number, more in enumerate(({"prefix": prefix}, {}))
    )
    trio = Trio(postgres_url, [one, two])
    one.start()
    assert trio.leader() is one
    two.start()
    (announced,) = one.create("Reboot", "web-0")

    set_ahead(ahead, 1200)
    one.command("pause")  # which has the scheduler look
    one.command("resume")
    wait_until(lambda: "clock_differs" in one.said(), "the clock is not off", ANSWER_SECONDS)
    wait_until(lambda: trio.leader() is two, "nobody took over", ANSWER_SECONDS)
    wait_until(lambda: finding(two, "database clock")["verdict"] == "fail", "no report", 10)

    assert one.event(announced["event_id"])["event_status"] == "Scheduled"
    sentence = finding(two, "database clock")["sentence"]
    assert "is 20m ahead of the clock of the database" in sentence
    assert sentence.startswith("Replica ")
    assert one.said().count("clock_differs") == 1

    set_ahead(ahead, 0)
    wait_until(lambda: "clock_agrees" in one.said(), "the clock is still off", ANSWER_SECONDS)
    two.stop()
    wait_until(lambda: trio.leader() is one, "it leads no more", ANSWER_SECONDS)


def test_event_of_a_replica_whose_clock_is_behind_has_its_notice(
    make_server: ServerMaker, postgres_url: str, tmp_path: Path
) -> None:
    ahead = tmp_path / "ahead"
    set_ahead(ahead, -1200)
    prefix = (sys.executable, str(DRIVER), str(ahead))
    server = make_replica(make_server, postgres_url, tmp_path, 0, prefix=prefix)
    server.start()

    (made,) = server.create("Reboot", "web-0")

    notice = datetime.fromisoformat(made["not_before"]) - SystemClock().now()
    assert notice > timedelta(minutes=14)


def set_ahead(file: Path, seconds: int) -> None:
    """Have the clock be ahead, at once: the server may read the file at any moment."""
    draft = file.with_suffix(".new")
    draft.write_text(str(seconds), "ascii")
    draft.replace(file)


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
