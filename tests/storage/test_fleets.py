"""Changes of large fleets: only what differs is read and written, and nobody waits for more."""

import threading
from collections.abc import Callable, Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import ExitStack, closing, contextmanager
from pathlib import Path
from shutil import copy

import psycopg
import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st
from tests.works import TIMEOUT, held

from forewarn.domain.amending import amend, build_topology
from forewarn.domain.names import HostName, ScopeId, VmName
from forewarn.domain.topology import FleetKeys, Topology, VirtualMachine, standalone
from forewarn.metadata.board import Board
from forewarn.metadata.store_feed import StoreFeed
from forewarn.ports.changes import StoreChange
from forewarn.ports.store import SERVER_PAUSE, Reading, Store, StoreUnavailableError, Transaction
from forewarn.storage.postgres import PostgresStore, open_postgres
from forewarn.storage.sqlite import SqliteStore, open_sqlite, upgrade
from forewarn.storage.topology_cache import MOST_KEYS

NAMES = tuple("abcdefgh")
WAITING = "SELECT count(*) FROM pg_locks WHERE NOT granted AND mode = 'AccessExclusiveLock'"


def machine(name: str, *, zone: str = "", host: str | None = None) -> VirtualMachine:
    return VirtualMachine(
        name=VmName(name),
        scope_id=ScopeId(f"virtual-machine/{name}"),
        zone=zone,
        host=None if host is None else HostName(host),
    )


def fleet_of(*vms: VirtualMachine) -> Topology:
    return build_topology(scopes=[standalone(vm.name) for vm in vms], virtual_machines=vms)


def add(*vms: VirtualMachine) -> Callable[[Transaction], None]:
    scopes = [standalone(vm.name) for vm in vms]
    return lambda tx: tx.put_topology(amend(tx.topology(), scopes=scopes, virtual_machines=vms))


def remove(*names: str) -> Callable[[Transaction], None]:
    def work(tx: Transaction) -> None:
        known = tx.topology()
        vms = tuple(VmName(name) for name in names if name in known.virtual_machines)
        scopes = tuple(ScopeId(f"virtual-machine/{name}") for name in vms)
        tx.put_topology(amend(known, gone=FleetKeys(virtual_machines=vms, scopes=scopes)))

    return work


def put(fleet: Topology) -> Callable[[Transaction], None]:
    return lambda tx: tx.put_topology(fleet)


def pause(tx: Transaction) -> None:
    tx.put_setting(SERVER_PAUSE, "1")


def see(store: Store) -> Topology:
    return store.read(lambda reading: reading.topology())


def order(topology: Topology) -> tuple[list[str], ...]:
    return list(topology.virtual_machines), list(topology.scopes), list(topology.hosts)


@pytest.fixture(params=["sqlite", "postgresql"])
def open_store(request: pytest.FixtureRequest, tmp_path: Path) -> Callable[[], Store]:
    if request.param == "postgresql":
        url = request.getfixturevalue("postgres_url")
        return lambda: open_postgres(url)
    path = tmp_path / "forewarn.db"
    upgrade(path)
    return lambda: open_sqlite(path)


CHANGES = st.lists(
    st.one_of(
        st.tuples(st.just("put"), st.permutations(NAMES), st.integers(0, len(NAMES))),
        st.tuples(st.just("add"), st.permutations(NAMES), st.integers(1, 2)),
        st.tuples(st.just("remove"), st.permutations(NAMES), st.integers(1, 2)),
    ),
    min_size=1,
    max_size=4,
)


def works(changes: list[tuple[str, list[str], int]]) -> Iterator[Callable[[Transaction], None]]:
    for number, (verb, names, count) in enumerate(changes):
        chosen = names[:count]
        vms = [machine(name, zone=str(number), host=f"kvm-{count}") for name in chosen]
        if verb == "put":
            yield put(fleet_of(*vms))
        elif verb == "add":
            yield add(*vms)
        else:
            yield remove(*chosen)


@settings(
    max_examples=10, deadline=None, suppress_health_check=[HealthCheck.function_scoped_fixture]
)
@given(groups=st.lists(CHANGES, min_size=1, max_size=3))
def test_whatever_changes_all_have_it_in_the_same_order(
    open_store: Callable[[], Store], groups: list[list[tuple[str, list[str], int]]]
) -> None:
    """Whoever made it, whoever reads only what differs, and whoever reads all of it."""
    with ExitStack() as stack:
        store = stack.enter_context(closing(open_store()))
        is_shared = isinstance(store, PostgresStore)
        other = stack.enter_context(closing(open_store())) if is_shared else store
        store.write(put(fleet_of(machine("a"), machine("b"))))
        made = see(other)
        for changes in groups:
            with held(store):
                submitted = [store.submit(work) for work in works(changes)]
            for each in submitted:
                each.result(TIMEOUT)
            made, followed = see(store), see(other)
            assert (followed, order(followed)) == (made, order(made))
            assert (
                followed.directory
                == Topology(virtual_machines=made.virtual_machines, scopes={}, hosts={}).directory
            )
    with closing(open_store()) as again:
        assert (see(again), order(see(again))) == (made, order(made))


def test_replica_reads_only_what_another_has_changed(
    store: PostgresStore, replica: PostgresStore
) -> None:
    store.write(put(fleet_of(machine("a"), machine("b"), machine("c"))))
    before = see(replica)

    store.write(add(machine("b", zone="2"), machine("d", host="kvm-1")))
    store.write(remove("c"))

    after = see(replica)
    assert list(after.virtual_machines) == ["a", "b", "d"]
    assert after.virtual_machines[VmName("a")] is before.virtual_machines[VmName("a")]
    assert after == see(store)


def test_replica_reads_all_of_what_no_hint_tells(
    postgres_url: str, store: PostgresStore, replica: PostgresStore
) -> None:
    """Too much, another order, written by a release whose hints did not tell, or long ago."""
    store.write(put(fleet_of(machine("a"), machine("b"))))
    see(replica)
    store.write(add(*(machine(f"vm-{number}") for number in range(MOST_KEYS))))
    assert see(replica) == see(store)
    store.write(put(fleet_of(machine("b"), machine("a"))))
    assert order(see(replica)) == order(see(store))

    store.write(add(machine("new")))
    with psycopg.connect(postgres_url, autocommit=True) as connection:
        connection.execute("UPDATE changes SET hint = (hint::jsonb - 'revision' - 'revises')::json")
        assert see(replica) == see(store)
        connection.execute("UPDATE settings SET value = '99999' WHERE name = 'topology_version'")
        assert see(replica) == see(store)


def test_hint_of_a_later_release_that_tells_more_is_read(
    postgres_url: str, store: PostgresStore, replica: PostgresStore
) -> None:
    store.write(put(fleet_of(machine("a"))))
    before = see(replica)
    store.write(add(machine("b")))
    with psycopg.connect(postgres_url, autocommit=True) as connection:
        connection.execute("UPDATE changes SET hint = (hint::jsonb || '{\"more\": [1]}')::json")

    after = see(replica)

    assert after.virtual_machines[VmName("a")] is before.virtual_machines[VmName("a")]
    assert list(after.virtual_machines) == ["a", "b"]


@pytest.mark.parametrize(
    "more",
    [
        '{"topology_version": {"major": 2}}',
        '{"topology_version": "2.0"}',
        '{"revision": 2}',
        "[2]",
    ],
)
def test_hint_of_a_later_release_that_cannot_be_read_keeps_nobody_from_the_fleet(
    postgres_url: str, store: PostgresStore, replica: PostgresStore, more: str
) -> None:
    store.write(put(fleet_of(machine("a"))))
    see(replica)
    store.write(add(machine("b")))
    with psycopg.connect(postgres_url, autocommit=True) as connection:
        connection.execute("UPDATE changes SET hint = (hint::jsonb || %s::jsonb)::json", [more])

    assert list(see(replica).virtual_machines) == ["a", "b"]
    replica.write(add(machine("c")))
    assert list(see(store).virtual_machines) == ["a", "b", "c"]


@contextmanager
def unreadable(url: str) -> Iterator[Callable[[Transaction], None]]:
    """Have nobody read virtual machines in the block, from the commit of the work that it gives.

    The lock waits for that transaction, and everybody who comes later waits for the lock.
    """
    with (
        psycopg.connect(url) as locking,
        psycopg.connect(url, autocommit=True) as watching,
        ThreadPoolExecutor(1) as threads,
    ):

        def lock(_: Transaction) -> None:
            threads.submit(locking.execute, "LOCK TABLE virtual_machines")
            deadline = threading.Event()
            for _attempt in range(1000):
                row = watching.execute(WAITING).fetchone()
                if row and row[0]:
                    return
                deadline.wait(0.01)
            raise AssertionError("nobody waits for the lock")

        yield lock
        locking.rollback()


def reordering(lock: Callable[[Transaction], None]) -> Callable[[Transaction], None]:
    """Return a change that others have to read all of, and cannot yet."""

    def work(tx: Transaction) -> None:
        tx.put_topology(fleet_of(machine("new"), machine("a")))
        lock(tx)

    return work


def test_work_that_needs_a_topology_which_is_being_read_holds_nobody_up(
    postgres_url: str, store: PostgresStore, replica: PostgresStore
) -> None:
    store.write(put(fleet_of(machine("a"))))
    see(replica)
    with ThreadPoolExecutor(1) as threads:
        with unreadable(postgres_url) as lock:
            store.write(reordering(lock))
            reading = threads.submit(see, replica)
            needing = replica.submit(lambda tx: tx.topology())

            replica.submit(pause).result(TIMEOUT / 4)
            store.submit(pause).result(TIMEOUT / 4)

            assert not reading.done()
            assert not needing.done()

        assert needing.result(TIMEOUT) == reading.result(TIMEOUT) == see(store)


def test_write_is_acknowledged_while_the_board_reads_what_others_have_changed(
    postgres_url: str, store: PostgresStore, replica: PostgresStore
) -> None:
    store.write(put(fleet_of(machine("a"))))
    board = Board()
    put_up = threading.Event()

    def shown(_: StoreChange) -> None:
        if board.vm_named("new"):
            put_up.set()

    feed = StoreFeed(board, replica, shown)
    feed.begin()
    following = threading.Thread(target=feed.rounds.run)
    following.start()
    try:
        with unreadable(postgres_url) as lock:
            store.write(reordering(lock))

            replica.submit(pause).result(TIMEOUT / 4)

            assert board.vm_named("new") is None
        assert put_up.wait(TIMEOUT), "the topology was not put up"
    finally:
        feed.rounds.stop()
        following.join(TIMEOUT)


class ForgetfulStore(SqliteStore):
    """A store that has no luck with reading all of a fleet."""

    problem: Exception | None = None

    def load_topology(self) -> None:
        if self.problem:
            raise self.problem


@pytest.fixture
def forgetful(tmp_path: Path) -> Iterator[ForgetfulStore]:
    path = tmp_path / "forewarn.db"
    upgrade(path)
    with closing(open_sqlite(path)) as store:
        store.write(put(fleet_of(machine("a"))))
    with closing(ForgetfulStore(path)) as opened:
        yield opened


def test_work_waits_only_so_often_for_a_fleet_that_changes_all_the_time(
    forgetful: ForgetfulStore,
) -> None:
    with pytest.raises(StoreUnavailableError, match="changes faster than it can be read"):
        forgetful.write(lambda tx: tx.topology())

    forgetful.write(pause)


def test_what_keeps_the_fleet_from_being_read_is_told_to_whoever_needs_it(
    forgetful: ForgetfulStore,
) -> None:
    forgetful.problem = StoreUnavailableError("it is away")

    with pytest.raises(StoreUnavailableError, match="it is away"):
        forgetful.write(lambda tx: tx.topology())

    forgetful.write(pause)


def test_work_that_waits_for_the_fleet_is_done_before_the_store_is_closed(
    open_store: Callable[[], Store],
) -> None:
    with closing(open_store()) as store:
        store.write(put(fleet_of(machine("a"))))
    again = open_store()

    done = again.submit(lambda tx: tx.topology())
    again.close()

    assert list(done.result(0).virtual_machines) == ["a"]


def test_reader_sees_the_fleet_of_its_moment_while_that_changes(tmp_path: Path) -> None:
    path = tmp_path / "forewarn.db"
    upgrade(path)
    copied = tmp_path / "copy.db"
    copy(path, copied)
    with closing(open_sqlite(copied)) as store:
        store.write(put(fleet_of(machine("a"))))
        before = see(store)

        def look(reading: Reading) -> Topology:
            reading.setting("any")  # its moment is now
            store.write(add(machine("b")))
            return reading.topology()

        assert store.read(look) is before
        assert list(see(store).virtual_machines) == ["a", "b"]
