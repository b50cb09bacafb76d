"""How large a database is, and which tables make it so."""

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Final

from sqlalchemy import Connection, Table, func, null, select, text

from forewarn.storage.columns import MomentColumn
from forewarn.storage.tables import metadata

_SIZES: Final[Mapping[str, str]] = {
    "sqlite": "SELECT tbl_name, sum(pgsize) FROM dbstat JOIN sqlite_master USING (name) GROUP BY 1",
    "postgresql": "SELECT relname, pg_total_relation_size(oid) FROM pg_class "
    "WHERE relkind = 'r' AND pg_table_is_visible(oid)",
}
_CAN_TELL: Final = "SELECT 1 FROM pragma_module_list WHERE name = 'dbstat'"
"""Tells whether SQLite was built with what tells sizes; not every build is."""
_TOTAL: Final[Mapping[str, str]] = {
    "sqlite": "SELECT page_count * page_size FROM pragma_page_count, pragma_page_size",
    "postgresql": "SELECT pg_database_size(current_database())",
}
_FREE: Final = "SELECT freelist_count * page_size FROM pragma_freelist_count, pragma_page_size"


@dataclass(frozen=True, slots=True, kw_only=True)
class TableSize:
    """How much a table has; its *size* in bytes, with its indexes, if the engine can tell.

    *oldest* is when its first row is from, in ISO 8601, if rows have a time.
    """

    table: str
    rows: int
    size: int | None
    oldest: str | None


@dataclass(frozen=True, slots=True, kw_only=True)
class DatabaseSize:
    """How much a database has: the largest table first, no empty ones, and its *size* in bytes.

    *free* is the part that is used before the file grows; PostgreSQL does not tell.
    """

    tables: tuple[TableSize, ...]
    size: int
    free: int | None


def measure_database(connection: Connection) -> DatabaseSize:
    """Look at every table of the database of *connection*."""
    is_file = connection.dialect.name == "sqlite"
    can_tell = not is_file or connection.scalar(text(_CAN_TELL))
    found = connection.execute(text(_SIZES[connection.dialect.name])).all() if can_tell else ()
    sizes = {name: size for name, size in found}  # noqa: C416 - rows are no pairs to mypy
    tables = (
        _measure(connection, table, sizes.get(table.name)) for table in metadata.sorted_tables
    )
    return DatabaseSize(
        tables=tuple(
            sorted((each for each in tables if each.rows), key=lambda each: -(each.size or 0))
        ),
        size=connection.scalar(text(_TOTAL[connection.dialect.name])) or 0,
        free=connection.scalar(text(_FREE)) if is_file else None,
    )


def _measure(connection: Connection, table: Table, size: int | None) -> TableSize:
    moments = (each for each in table.c if each.type is MomentColumn and not each.nullable)
    oldest = next((func.min(each) for each in moments), null())
    rows, moment = connection.execute(select(func.count(), oldest).select_from(table)).one()
    return TableSize(table=table.name, rows=rows, size=size, oldest=moment and moment.isoformat())
