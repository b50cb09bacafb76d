"""Records of orders in a directory that several servers start with at once."""

from concurrent.futures import ThreadPoolExecutor
from contextlib import ExitStack, closing
from pathlib import Path

from forewarn.bootstrap.order_records import IMPACT_ORDERS, OrderRecords
from forewarn.clocks import SystemClock
from forewarn.executors.records import Records
from forewarn.operations.lineage import is_continued, is_in_doubt, read_lineage
from forewarn.ports.store import Reading, Store
from forewarn.storage.postgres import open_postgres

STARTS = 20


def test_servers_that_start_at_once_with_the_same_records_find_them_complete(
    postgres_url: str, tmp_path: Path
) -> None:
    began_at = SystemClock().now()

    def start(store: Store) -> None:
        for _ in range(STARTS):
            OrderRecords(IMPACT_ORDERS, tmp_path, store)

    with ExitStack() as stack:
        stores = [
            stack.enter_context(closing(open_postgres(postgres_url, node="node-0")))
            for _ in range(3)
        ]
        with ThreadPoolExecutor(len(stores)) as pool:
            list(pool.map(start, stores))

        found = read_lineage(Records(tmp_path / "impacts").lineage())

        def look(reading: Reading) -> tuple[bool, bool]:
            name = "impacts on node-0"
            return is_continued(reading, name, found), is_in_doubt(reading, name, began_at)

        assert found is not None
        assert found.generation == STARTS * len(stores)
        assert stores[0].read(look) == (True, False)
