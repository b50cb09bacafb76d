"""A state directory whose disk is full: another replica leads, and operators are told."""

import os
from pathlib import Path

from tests.e2e.conftest import ANSWER_SECONDS, ServerMaker, wait_until
from tests.e2e.replicas import Trio, make_replica
from tests.needs import find_program, need_namespaces

MOUNT = 'mkdir -p "{0}" && mount -t tmpfs -o size=128k none "{0}" && exec "$0" "$@"'


def test_leader_that_cannot_write_its_task_log_lets_another_lead(
    make_server: ServerMaker, postgres_url: str, tmp_path: Path
) -> None:
    need_namespaces("--map-root-user", "--mount")
    records = tmp_path / "s0" / "tasks"
    own_mounts = (find_program("unshare"), "--map-root-user", "--mount")
    prefix = (*own_mounts, "sh", "-c", MOUNT.format(records))
    one = make_replica(make_server, postgres_url, tmp_path, 0, prefix=prefix)
    two = make_replica(make_server, postgres_url, tmp_path, 1)
    trio = Trio(postgres_url, [one, two])
    one.start()
    assert trio.leader() is one
    two.start()
    ready = one.health("/readyz/write")

    assert one.process is not None
    filler = Path(f"/proc/{one.process.pid}/root{records}/filler")
    fill(filler)
    wait_until(lambda: trio.leader() is two, "nobody took over", ANSWER_SECONDS)
    wait_until(lambda: one.health("/readyz/write") == 503, "it is ready", ANSWER_SECONDS)
    wait_until(
        lambda: (
            "tasks cannot be written: No space left on device."
            in two.try_command("doctor", "--remote").stdout
        ),
        "the other does not tell",
        ANSWER_SECONDS,
    )
    (event,) = one.create("Reboot", "web-0", started=True)

    filler.unlink()
    wait_until(lambda: one.health("/readyz/write") == 200, "it is not ready", ANSWER_SECONDS)
    two.stop()
    wait_until(lambda: trio.leader() is one, "it leads no more", ANSWER_SECONDS)

    assert ready == 200
    assert one.event(event["event_id"])["event_status"] == "Started"
    assert one.said().count("state_directory_not_writable") == 1


def fill(file: Path) -> None:
    """Write *file* until there is no space left."""
    descriptor = os.open(file, os.O_WRONLY | os.O_CREAT)
    try:
        for _ in range(100):
            os.write(descriptor, bytes(4096))
    except OSError:
        return
    finally:
        os.close(descriptor)
    raise AssertionError
