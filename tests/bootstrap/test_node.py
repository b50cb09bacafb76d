"""What tells replicas apart that share a database: where each keeps its files."""

import socket
import stat
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from shutil import copytree

import pytest

from forewarn.bootstrap.database import open_database
from forewarn.bootstrap.node import NODE_FILE, find_node, machine_of
from forewarn.bootstrap.presence import introduce
from forewarn.bootstrap.start import StartError
from forewarn.settings import make_settings


def test_node_is_made_once_and_named_after_the_machine(tmp_path: Path) -> None:
    directory = tmp_path / "state"

    node = find_node(directory)

    assert find_node(directory) == node
    assert machine_of(node) == socket.gethostname()
    assert find_node(tmp_path) != node
    assert [*directory.iterdir()] == [directory / NODE_FILE]
    assert stat.S_IMODE((directory / NODE_FILE).stat().st_mode) == 0o600


def test_copy_of_a_state_directory_is_another_node_and_a_move_is_not(tmp_path: Path) -> None:
    node = find_node(tmp_path / "state")

    copytree(tmp_path / "state", tmp_path / "copy")
    (tmp_path / "state").rename(tmp_path / "moved")

    assert find_node(tmp_path / "moved") == node
    copy = find_node(tmp_path / "copy")
    assert copy != node
    assert find_node(tmp_path / "copy") == copy


def test_processes_that_start_at_once_are_one_node(tmp_path: Path) -> None:
    with ThreadPoolExecutor(8) as pool:
        nodes = set(pool.map(find_node, [tmp_path] * 8))

    assert len(nodes) == 1
    assert [*tmp_path.iterdir()] == [tmp_path / NODE_FILE]


@pytest.mark.parametrize("content", [b"", b"\xff", b"db-2", b"db-2:12\n", b"a b:" + b"0" * 32])
def test_file_with_something_else_is_refused(tmp_path: Path, content: bytes) -> None:
    path = tmp_path / NODE_FILE
    path.write_bytes(content)

    with pytest.raises(StartError, match="remove it to serve as a new replica") as refusal:
        find_node(tmp_path)

    assert str(refusal.value).startswith(f"{path} does not contain a valid node id;")
    assert path.read_bytes() == content


def test_state_directory_that_cannot_be_used_is_named(tmp_path: Path) -> None:
    (tmp_path / "state").write_text("a file")

    with pytest.raises(StartError, match=r"Cannot store the node id in .*node\.id: "):
        find_node(tmp_path / "state")


def test_replica_has_the_node_of_its_state_directory(postgres_url: str, tmp_path: Path) -> None:
    settings = make_settings({"database": postgres_url, "state_dir": tmp_path})

    with (
        open_database(settings, introduce(settings, "http://127.0.0.1")) as one,
        open_database(settings, introduce(settings, "http://127.0.0.1")) as other,
    ):
        assert one.store.node == other.store.node == find_node(tmp_path)
        ids = {each.identity.replica_id for each in one.replicas.call_roll().replicas}
        assert ids == {one.replicas.itself.replica_id, other.replicas.itself.replica_id}
        assert all(each.startswith(f"{one.store.node}/") for each in ids)


def test_server_with_a_database_of_its_own_is_no_node(tmp_path: Path) -> None:
    settings = make_settings({"database": str(tmp_path / "forewarn.db")})

    with open_database(settings, introduce(settings, "http://127.0.0.1")) as database:
        assert database.store.node == ""

    assert not (tmp_path / NODE_FILE).exists()
