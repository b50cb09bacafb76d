"""Everything of uvicorn that we touch beyond its documented interface, in one place.

`TOUCHED` names it; tests/unit/test_parts.py says what has moved when uvicorn is updated, and
pyproject.toml keeps newer versions out until then.
"""

from collections.abc import Mapping
from typing import Any, Final, cast

from uvicorn import Server
from uvicorn.protocols.http.flow_control import HIGH_WATER_LIMIT, FlowControl
from uvicorn.protocols.http.httptools_impl import (
    STATUS_LINE,
    HttpToolsProtocol,
    RequestResponseCycle,
)
from uvicorn.protocols.utils import get_remote_addr, is_ssl
from uvicorn.server import ServerState

__all__ = [
    "HIGH_WATER_LIMIT",
    "STATUS_LINE",
    "TOUCHED",
    "HttpToolsProtocol",
    "RequestResponseCycle",
    "ServerState",
    "cycle_of",
    "get_remote_addr",
    "is_ssl",
]

TOUCHED: Final[Mapping[type, str]] = {
    Server: "_serve capture_signals config main_loop on_tick serve server_state servers "
    "should_exit shutdown started",
    ServerState: "connections default_headers tasks total_requests",
    FlowControl: "drain write_paused",
    HttpToolsProtocol: "_unset_keepalive_if_required access_log app client "
    "connection_lost connection_made connections cycle data_received eof_received flow headers "
    "loop on_header on_headers_complete on_message_begin on_message_complete on_url parser "
    "pause_writing pipeline resume_writing scope server_state shutdown timeout_keep_alive "
    "timeout_keep_alive_handler timeout_keep_alive_task transport url",
    RequestResponseCycle: "default_headers disconnected flow keep_alive message_event on_response "
    "response_complete response_started scope send transport waiting_for_100_continue",
}
"""The attributes and methods that we read, set, call or override, by class."""


def cycle_of(send: Any) -> RequestResponseCycle:
    """Return the request that an application answers with *send*: it is a method of that."""
    return cast("RequestResponseCycle", send.__self__)
