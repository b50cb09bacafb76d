"""A real server that outgrows its file, and goes on in PostgreSQL."""

from tests.e2e.conftest import ANSWER_SECONDS, ServerMaker, wait_until


def test_server_goes_on_in_postgresql_where_it_was(
    start_server: ServerMaker, make_server: ServerMaker, postgres_url: str
) -> None:
    old = start_server()
    (event,) = old.create("Reboot", "solo-0")
    before = old.poll("solo-0")
    assert old.stop() == 0

    moved = old.try_command("db", "copy", str(old.database), postgres_url)
    assert moved.returncode == 0, moved.stderr
    new = make_server("--database", postgres_url, "--state-dir", str(old.database.parent))
    new.start()

    assert new.poll("solo-0").body == before.body
    assert not new.operate("GET", "server").json()["is_paused"]
    new.approve("solo-0", event["event_id"])
    new.wait_for(event["event_id"], "Started")
    # Operators see what is committed; virtual machines, some milliseconds later.
    wait_until(
        lambda: new.poll("solo-0").incarnation > before.incarnation,
        "it is not shown",
        ANSWER_SECONDS,
    )
