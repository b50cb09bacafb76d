"""What writes and removes one row of each table, built once, as both engines write it."""

import sqlite3
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from itertools import islice
from json import JSONEncoder
from operator import attrgetter
from typing import Any, Final, TypeAlias, TypeVar

from sqlalchemy import (
    Boolean,
    ColumnElement,
    Connection,
    Dialect,
    Insert,
    Table,
    bindparam,
    case,
    create_mock_engine,
    delete,
    exists,
    select,
    update,
)
from sqlalchemy.dialects import postgresql, sqlite
from sqlalchemy.dialects.sqlite.pysqlite import dialect as sqlite_dialect

from forewarn.storage.tables import (
    audit,
    delivery_scopes,
    documents,
    hosts,
    ledger,
    metadata,
    polls,
    showings,
    virtual_machines,
    vm_polls,
)

T = TypeVar("T")

_CHUNK: Final = 1000
_SQLITE: Final = sqlite_dialect(
    dbapi=sqlite3, json_serializer=JSONEncoder(separators=(",", ":"), ensure_ascii=False).encode
)
_POSTGRESQL: Final = create_mock_engine(
    "postgresql+psycopg://", lambda *_: None, paramstyle="format"
).dialect
_ENGINES: Final[Mapping[str, tuple[Dialect, Callable[[Table], Any]]]] = {
    _SQLITE.name: (_SQLITE, sqlite.insert),
    _POSTGRESQL.name: (_POSTGRESQL, postgresql.insert),
}
"""How each engine writes, and begins a statement that adds a row, by its name."""

InsertMaker: TypeAlias = Callable[[Any], Insert]
"""Makes a statement that writes one row of what begins it, in the words of either engine."""


class PreparedInsert:
    """A statement that writes one row, compiled once and given to the driver as it is.

    Every acknowledged write runs some of these. SQLAlchemy would need more time to look one up in
    its cache, and to wrap up the result that it does not have, than SQLite needs to run it.
    """

    def __init__(self, table: Table, make: InsertMaker) -> None:
        compiled = {
            name: make(insert(table)).compile(dialect=dialect, column_keys=given_columns(table))
            for name, (dialect, insert) in _ENGINES.items()
        }
        self.texts = {name: str(each) for name, each in compiled.items()}
        """What it says, by engine."""
        own = compiled[_SQLITE.name]
        self.names = tuple(own.positiontup or ())
        """What it takes, in this order."""
        kinds = (own.binds[name].type.dialect_impl(_SQLITE) for name in self.names)
        # What SQLite is given PostgreSQL understands as well, but for numbers in place of truths.
        processors: list[Callable[[Any], Any] | None] = [
            None if isinstance(kind, Boolean) else kind.bind_processor(_SQLITE) for kind in kinds
        ]
        self._values_of = attrgetter(*self.names)
        self._processors = [(place, each) for place, each in enumerate(processors) if each]

    def put(self, connection: Connection, thing: object) -> int:
        """Write *thing*, whose fields are named like the columns, and return as `run` does."""
        return self.run(connection, *self._values_of(thing))

    def run(self, connection: Connection, *values: object) -> int:
        """Write the row of *values*, and return how many rows that were: one, or none."""
        cursor = connection.connection.cursor()
        cursor.execute(self.texts[connection.dialect.name], self.prepare(values))
        return cursor.rowcount

    def run_many(self, connection: Connection, rows: Iterable[Sequence[object]]) -> None:
        """Write *rows*, which are prepared, in chunks that nobody has to wait for."""
        cursor = connection.connection.cursor()
        for chunk in in_chunks(rows):
            cursor.executemany(self.texts[connection.dialect.name], chunk)

    def prepare(self, values: Iterable[object]) -> list[object]:
        """Return *values* as the driver takes them."""
        parameters = list(values)
        for place, process in self._processors:
            parameters[place] = process(parameters[place])
        return parameters


def key_of(table: Table) -> list[str]:
    """Return the columns by which rows are known; their place in the order is not one of them."""
    own = [column.name for column in table.columns if column.unique]
    return own or [column.name for column in table.primary_key]


def upsert(statement: Any, **otherwise: ColumnElement[Any]) -> Insert:
    """Return *statement* so that it adds a row, or replaces what has its key, except its place.

    What is in a row already becomes what *otherwise* has for its column, not what is added.
    """
    table = statement.table
    key = key_of(table)
    changed = {name: statement.excluded[name] for name in given_columns(table) if name not in key}
    changed |= otherwise
    replacing: Insert = statement.on_conflict_do_update(index_elements=key, set_=changed)
    return replacing


def in_chunks(rows: Iterable[T]) -> Iterator[list[T]]:
    """Yield *rows* in lists short enough that other threads need not wait for one."""
    remaining = iter(rows)
    while chunk := list(islice(remaining, _CHUNK)):
        yield chunk


def given_columns(table: Any) -> list[str]:
    """Return all columns but the one that only keeps the order."""
    return [column.name for column in table.columns if column.name != "sequence"]


def _next_document(statement: Insert) -> Insert:
    # One statement both for the row and for the rule that incarnations only ever go up.
    row = {column.name: bindparam(column.name, type_=column.type) for column in documents.columns}
    is_behind = exists().where(
        documents.c.scope_id == row["scope_id"],
        documents.c.document_incarnation >= row["document_incarnation"],
    )
    return statement.from_select(list(row), select(*row.values()).where(~is_behind))


def _latest(name: str) -> InsertMaker:
    """Return how rows are added whose moment only moves on: replicas write without an order."""

    def make(statement: Any) -> Insert:
        known, given = statement.table.c[name], statement.excluded[name]
        return upsert(statement, **{name: case((given > known, given), else_=known)})

    return make


def _in_place(statement: Any) -> Insert:
    return upsert(statement, position=statement.table.c.position)


_WAYS: Final[Mapping[Table, InsertMaker]] = {
    documents: _next_document,
    ledger: lambda statement: statement,
    audit: lambda statement: statement,
    polls: _latest("last_polled_at"),
    vm_polls: _latest("last_polled_at"),
    showings: _latest("shown_at"),
    delivery_scopes: _in_place,
    hosts: _in_place,
    virtual_machines: _in_place,
}
"""How rows are added to tables in which not everything is replaced."""
PUT: Final = {
    table: PreparedInsert(table, _WAYS.get(table, upsert)) for table in metadata.tables.values()
}
"""What writes a row of each table."""
REMOVE: Final = {
    table: delete(table).where(*(table.c[name] == bindparam(name) for name in key_of(table)))
    for table in metadata.tables.values()
}
"""What removes the row of each table that has a key."""
MOVE: Final = {
    table: update(table)
    .where(*(table.c[name] == bindparam("of") for name in key_of(table)))
    .values(position=bindparam("to"))
    for table in (delivery_scopes, hosts, virtual_machines)
}
"""What gives a row of the fleet another place."""
