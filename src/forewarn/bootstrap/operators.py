"""The server that answers operators."""

import socket
from collections import Counter
from collections.abc import Callable, Iterable, Mapping
from dataclasses import replace
from functools import partial
from http import HTTPStatus
from typing import Final, Protocol

import uvicorn
from starlette.types import ASGIApp, Message, Receive, Scope, Send

import forewarn
from forewarn.bootstrap.clock_control import ReplicaClockControl
from forewarn.bootstrap.replica import Replica
from forewarn.bootstrap.start import AdminToken, note_admin_token
from forewarn.bootstrap.tls import Certificate, find_certificate
from forewarn.clocks import SystemClock
from forewarn.connections.listeners import stop_listening
from forewarn.console.app import create_console
from forewarn.console.pulse import Pulse
from forewarn.control.app import create_app
from forewarn.control.authentication import is_of_api
from forewarn.control.http import configure
from forewarn.desk.caller import Authenticator
from forewarn.desk.ledger_watch import LedgerWatch
from forewarn.desk.refusals import Refusals
from forewarn.desk.services import Services
from forewarn.domain.access import ADMIN
from forewarn.domain.finding import Finding
from forewarn.emulator.builtin import built_in_scenarios
from forewarn.operations.discovery import find_sources
from forewarn.operations.findings import ReplicaState, examine_replica, examine_server
from forewarn.operations.pausing import find_pause
from forewarn.ports.entries import Actor, Figures
from forewarn.ports.replicas import RollCall
from forewarn.telemetry.metrics import FigureSources, exporter
from forewarn.wording.addresses import TcpAddress, parse_address

_READING: Final = frozenset({"GET", "HEAD", None})
"""Methods that change nothing; the lifespan of the application has none."""


class Stream(Protocol):
    """Something that goes on until it is told to stop."""

    def stop(self) -> None: ...


class ControlServer(uvicorn.Server):
    """uvicorn on open sockets, leaving the signals to whoever runs the event loop."""

    def __init__(
        self,
        app: ASGIApp,
        listeners: Iterable[socket.socket],
        *,
        certificate: Certificate | None = None,
        streams: Iterable[Stream] = (),
        refusals: Refusals,
    ) -> None:
        super().__init__(configure(app, tls=certificate.context if certificate else None))
        self._certificate = certificate
        self._listeners = list(listeners)
        self._streams = tuple(streams)
        self._refusals = refusals

    async def serve(self, sockets: list[socket.socket] | None = None) -> None:
        """Serve until told to stop."""
        try:
            await self._serve(sockets or self._listeners)
        finally:
            await self._refusals.settle(everything=True)

    def renew_certificate(self) -> bool:
        """Show the certificate that is in the files now, on new connections; tell if there is one.

        Files that cannot be used are refused, and the old certificate stays.
        """
        if self._certificate is None:
            return False
        self._certificate.renew()
        return True

    async def shutdown(self, sockets: list[socket.socket] | None = None) -> None:
        """Let everything finish, and end what would not by itself."""
        for stream in self._streams:
            stream.stop()
        # uvicorn waits for whom it does not know yet, and leaves the connection open.
        await stop_listening((*self.servers, *(sockets or ())))
        await super().shutdown(sockets)


def control_server(
    replica: Replica, listeners: Iterable[socket.socket], *, is_ready: Callable[[], bool]
) -> ControlServer:
    """Return the server of the control API and the console of *replica* on *listeners*."""
    ledger_watch, pulse = LedgerWatch(replica.store), Pulse()
    replica.store.listen(ledger_watch.note)
    replica.store.listen(pulse.note)
    refused = Counter[str]()
    certificate = find_certificate(replica.settings)
    services = _make_services(replica, ledger_watch, refused, is_ready, certificate)
    replica.replicas.examine = lambda: examine_replica(
        ReplicaState(
            is_answering=is_ready(),
            is_writable=replica.store.is_writable(),
            records_problem=replica.candidate.records_problem,
            is_following=replica.replicas.is_following(),
            failures=replica.supervisor.failures,
            failing=replica.supervisor.failing,
            executor_problem=replica.executor_problem(),
            certificate=certificate.path if certificate else None,
            expires_at=certificate.expires_at if certificate else None,
            clock_offset=replica.candidate.clock_offset * replica.candidate.is_clock_off,
            jumps=replica.clock_watch.jumps,
        ),
        SystemClock().now(),
    )
    where = parse_address(replica.settings.control)
    own_host = where.host if isinstance(where, TcpAddress) else ""
    names = replica.settings.control_host
    api = create_app(services, names, own_host=own_host)
    refusals: Refusals = api.state.refusals
    console = create_console(services, pulse, refusals, names, own_host=own_host)

    async def app(scope: Scope, receive: Receive, send: Send) -> None:
        if scope["type"] == "http" and not is_of_api(scope["path"]):
            await console(scope, receive, send)
            return
        await api(scope, receive, _touching(pulse, scope, send))

    return ControlServer(
        app,
        listeners,
        certificate=certificate,
        streams=(ledger_watch, pulse, replica.hub),
        refusals=refusals,
    )


def _touching(pulse: Pulse, scope: Scope, send: Send) -> Send:
    """Return *send*, which also has pages ask for themselves anew after what may be a change."""
    if scope.get("method") in _READING:
        return send

    async def send_and_touch(message: Message) -> None:
        await send(message)
        if message["type"] == "http.response.start" and message["status"] < HTTPStatus.BAD_REQUEST:
            pulse.touch()

    return send_and_touch


def _make_services(
    replica: Replica,
    ledger_watch: LedgerWatch,
    refused: Counter[str],
    is_ready: Callable[[], bool],
    certificate: Certificate | None,
) -> Services:
    directory = replica.settings.state_directory

    def note_renewal(secret: str) -> None:
        context = replace(replica.context(ADMIN), actor=Actor.SERVER)
        replica.store.submit(lambda tx: note_admin_token(tx, context, directory, secret))

    authenticator = Authenticator(
        store=replica.store,
        now=replica.wall.now,
        admin=ADMIN,
        admin_secret=None
        if replica.settings.is_shared
        else AdminToken(directory, replica.token, note_renewal),
    )
    return Services(
        store=replica.store,
        context=replica.context,
        clock=ReplicaClockControl(replica.clock, replica.candidate),
        faults=replica.faults,
        authenticate=authenticator.authenticate,
        recognise=authenticator.recognise,
        is_ready=is_ready,
        settle=replica.settle,
        finish_turn=replica.candidate.finish_turn,
        hand_over=replica.candidate.hand_over,
        replicas=replica.replicas,
        database=replica.database,
        ledger_watch=ledger_watch,
        scenarios=built_in_scenarios(),
        notifiers=replica.notifiers,
        gates=replica.gates,
        metrics=exporter(_sources(replica, ledger_watch, refused, certificate)),
        records_problem=lambda: replica.candidate.records_problem,
        failing=lambda: replica.supervisor.failing,
        jumps=lambda: replica.clock_watch.jumps,
        showings=replica.showings.pending,
        journal=replica.journal.requests if replica.settings.journal else None,
        relay_services=replica.relay_services,
        refused=refused,
    )


def _sources(
    replica: Replica,
    ledger_watch: LedgerWatch,
    refused: Mapping[str, int],
    certificate: Certificate | None,
) -> FigureSources:
    return FigureSources(
        version=forewarn.__version__,
        store=replica.store,
        wall=replica.wall,
        topology=lambda: replica.board.topology,
        tally=replica.tally,
        parked=lambda: len(replica.board.waiters),
        watchers=lambda: ledger_watch.watchers,
        followers=lambda: replica.hub.followers,
        lateness=replica.performance.lateness,
        epoch=lambda: replica.candidate.epoch,
        is_paused=lambda: replica.store.read(find_pause) is not None,
        discovered=lambda: replica.store.read(find_sources),
        maintenances=replica.candidate.count_maintenances,
        endings=replica.performance.endings,
        occurrences=replica.performance.occurrences,
        gates_shut=lambda: replica.candidate.shut_gates,
        loop_failures=replica.supervisor.failures,
        jumps=lambda: replica.clock_watch.number,
        clock_offset=lambda: replica.candidate.clock_offset,
        expires_at=lambda: certificate.expires_at if certificate else None,
        refused=refused,
        replicas=replica.replicas,
        findings=partial(_find_all, replica),
    )


def _find_all(replica: Replica, roll: RollCall, figures: Figures) -> Iterable[Finding]:
    """Return the findings about all replicas, scopes and Maintenances."""
    context = replica.context(ADMIN)
    _, findings = replica.store.read(
        lambda reading: examine_server(reading, context, roll, figures, has_all_scopes=True)
    )
    return findings
