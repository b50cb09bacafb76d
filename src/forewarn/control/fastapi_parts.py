"""Everything of FastAPI that we touch beyond its documented interface, in one place.

`TOUCHED` names it; tests/unit/test_parts.py says what has moved when FastAPI is updated, and
pyproject.toml keeps newer versions out until then.
"""

import re
from collections.abc import Iterator, Mapping
from http import HTTPMethod
from typing import Final

from fastapi import Request
from fastapi.dependencies.models import Dependant
from fastapi.routing import APIRoute
from starlette.routing import BaseRoute, Match

TOUCHED: Final[Mapping[type, str]] = {
    APIRoute: "dependant matches methods name path path_regex tags",
    Dependant: "dependencies header_params own_oauth_scopes query_params",
    Match: "FULL",
}
"""The attributes and methods that we read, set or call, by class."""


def query_names(route: BaseRoute) -> set[str]:
    """Return the names of the query parameters that *route* and its dependencies take."""
    return {field.alias for each in _dependants_of(route) for field in each.query_params}


def header_names(route: BaseRoute) -> set[str]:
    """Return the names of the headers that *route* and its dependencies take."""
    return {field.alias for each in _dependants_of(route) for field in each.header_params}


def needed_roles(route: BaseRoute) -> set[str]:
    """Return the roles that *route* and its dependencies say they need."""
    return {role for each in _dependants_of(route) for role in each.own_oauth_scopes or ()}


def match_path(route: APIRoute, path: str) -> dict[str, str] | None:
    """Return the parts of *path* that *route* names; None if it is not its path."""
    match = route.path_regex.match(path)
    return None if match is None else match.groupdict()


def ignore_case(route: APIRoute) -> None:
    """Have *route* match its path in any case."""
    # ASCII only: under Unicode's rules a long s is an s, too, to this pattern and to nobody else.
    route.path_regex = re.compile(route.path_regex.pattern, re.IGNORECASE | re.ASCII)


def methods_of(request: Request) -> list[str]:
    """Return the methods that the path of *request* has."""
    # Several routes share a path, and the router only tells of the first.
    routes: list[BaseRoute] = request.app.routes
    return [
        method
        for method in sorted(HTTPMethod)
        if any(
            route.matches({**request.scope, "method": method})[0] is Match.FULL for route in routes
        )
    ]


def _dependants_of(route: BaseRoute) -> Iterator[Dependant]:
    if isinstance(route, APIRoute):
        yield from _with_dependencies(route.dependant)


def _with_dependencies(dependant: Dependant) -> Iterator[Dependant]:
    yield dependant
    for dependency in dependant.dependencies:
        yield from _with_dependencies(dependency)
