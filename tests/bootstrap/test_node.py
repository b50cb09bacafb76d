"""What tells replicas apart that share a database: where each keeps its files."""

import stat
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from shutil import copytree

import pytest

from forewarn.bootstrap.database import open_database, own
from forewarn.bootstrap.node import NODE_FILE, find_node, held
from forewarn.bootstrap.presence import introduce
from forewarn.bootstrap.server import serve
from forewarn.bootstrap.start import StartError
from forewarn.settings import make_settings


def test_node_is_made_once(tmp_path: Path) -> None:
    directory = tmp_path / "state"

    node = find_node(directory)

    assert find_node(directory) == node
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
        assert one.node == other.node == find_node(tmp_path)
        ids = {each.identity.replica_id for each in one.replicas.call_roll().replicas}
        assert ids == {one.replicas.itself.replica_id, other.replicas.itself.replica_id}
        assert all(each.startswith(f"{one.node}/") for each in ids)


def test_server_with_a_database_of_its_own_is_a_node_too(tmp_path: Path) -> None:
    settings = make_settings({"database": str(tmp_path / "forewarn.db")})

    with open_database(settings, introduce(settings, "http://127.0.0.1")) as database:
        assert own(database, settings).node == (tmp_path / NODE_FILE).read_text().strip()

    copytree(tmp_path, tmp_path.parent / "copy")
    copy = make_settings({"database": str(tmp_path.parent / "copy" / "forewarn.db")})
    with open_database(copy, introduce(copy, "http://127.0.0.1")) as database:
        node = own(database, copy).node
        assert find_node(tmp_path, is_shared=False) == node, "it has moved with its file"


def test_state_directory_is_held_by_one_server_at_a_time(tmp_path: Path) -> None:
    directory = tmp_path / "state"

    with held(directory):
        with pytest.raises(StartError) as refusal, held(directory):
            pass
        with held(tmp_path / "other"):
            pass
    with held(directory):
        pass

    assert str(refusal.value) == (
        f"Another server uses the state directory {directory}; stop it, or use another directory "
        "with --state-dir."
    )


def test_state_directory_that_cannot_be_held_is_named(tmp_path: Path) -> None:
    (tmp_path / "state").write_text("a file")

    with (
        pytest.raises(StartError, match=f"^The state directory {tmp_path}/state cannot be used: "),
        held(tmp_path / "state"),
    ):
        pass


def test_second_server_on_a_state_directory_refuses_to_start(tmp_path: Path) -> None:
    settings = make_settings(
        {"state_dir": tmp_path, "metadata": "127.0.0.1:0", "control": "127.0.0.1:0"}
    )

    with held(tmp_path), pytest.raises(StartError, match="Another server uses the state directory"):
        serve(settings)

    assert [each.name for each in tmp_path.iterdir()] == [], "nothing was written"
