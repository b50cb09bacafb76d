"""The client SDK: what is about to happen to this virtual machine, on Azure or on forewarn.

It needs nothing but the standard library. What is not listed here is not for others.
"""

from forewarn.client._async_client import AsyncClient
from forewarn.client._client import Client
from forewarn.client._errors import (
    ClientError,
    ClosedError,
    EndpointError,
    RefusedError,
    UnavailableError,
)
from forewarn.client._watching import Change, ChangeKind, Polled
from forewarn.protocol.document import Document, Event
from forewarn.protocol.identity import Identity
from forewarn.protocol.vocabulary import EventId, EventSource, EventStatus, EventType

__all__ = [
    "AsyncClient",
    "Change",
    "ChangeKind",
    "Client",
    "ClientError",
    "ClosedError",
    "Document",
    "EndpointError",
    "Event",
    "EventId",
    "EventSource",
    "EventStatus",
    "EventType",
    "Identity",
    "Polled",
    "RefusedError",
    "UnavailableError",
]
