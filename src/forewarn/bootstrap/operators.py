"""The server that answers operators."""

import socket
from collections import Counter
from collections.abc import Callable, Iterable, Mapping

import uvicorn

import forewarn
from forewarn.bootstrap.clock_control import clock_control
from forewarn.bootstrap.service import Service
from forewarn.bootstrap.starting import ADMIN, AdminToken
from forewarn.bootstrap.tls import Certificate, find_certificate
from forewarn.clocks import SystemClock
from forewarn.control.app import create_app
from forewarn.control.auditing import Refusals
from forewarn.control.authentication import authenticator
from forewarn.control.feed import Feed
from forewarn.control.http import configure
from forewarn.control.services import Services
from forewarn.emulator.builtin import built_in_scenarios
from forewarn.operations.addresses import TcpAddress, parse_address
from forewarn.operations.pausing import find_pause
from forewarn.telemetry.metrics import Sources, exporter


class ControlServer(uvicorn.Server):
    """uvicorn on open sockets, leaving the signals to whoever runs the event loop."""

    def __init__(
        self,
        config: uvicorn.Config,
        listeners: Iterable[socket.socket],
        *,
        certificate: Certificate | None,
        feed: Feed,
        refusals: Refusals,
    ) -> None:
        super().__init__(config)
        self._certificate = certificate
        self._listeners = list(listeners)
        self._feed = feed
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
        self._feed.stop()
        await super().shutdown(sockets)


def control_server(
    service: Service, listeners: Iterable[socket.socket], *, is_ready: Callable[[], bool]
) -> ControlServer:
    """Return the server of the control API of *service* on *listeners*."""
    feed = Feed(service.store)
    service.store.listen(feed.note)
    refused = Counter[str]()
    services = _make_services(service, feed, refused, is_ready)
    where = parse_address(service.settings.control)
    own_host = where.host if isinstance(where, TcpAddress) else ""
    app = create_app(services, service.settings.control_host, own_host=own_host)
    certificate = find_certificate(service.settings)
    return ControlServer(
        configure(app, tls=certificate.context if certificate else None),
        listeners,
        certificate=certificate,
        feed=feed,
        refusals=app.state.refusals,
    )


def _make_services(
    service: Service, feed: Feed, refused: Counter[str], is_ready: Callable[[], bool]
) -> Services:
    return Services(
        store=service.store,
        context=service.context,
        clock=clock_control(service.clock, service.store, service.scheduler),
        faults=service.faults,
        authenticate=authenticator(
            service.store,
            now=SystemClock().now,
            admin=ADMIN,
            admin_secret=AdminToken(service.settings.state_directory, service.token),
        ),
        is_ready=is_ready,
        changed=service.changed,
        settled=service.scheduler.finish_turn,
        known=lambda: service.scheduler.known,
        executor_problem=service.executor_problem,
        feed=feed,
        scenarios=built_in_scenarios(),
        notifiers=service.notifiers,
        gates=service.gates,
        metrics=exporter(_sources(service, feed, refused)),
        jumps=lambda: service.clock_watch.jumps,
        showings=service.showings.pending,
        refused=refused,
    )


def _sources(service: Service, feed: Feed, refused: Mapping[str, int]) -> Sources:
    return Sources(
        version=forewarn.__version__,
        store=service.store,
        wall=SystemClock(),
        topology=lambda: service.board.topology,
        tally=service.tally,
        parked=lambda: len(service.board.waiters),
        watchers=lambda: feed.watchers,
        lateness=service.scheduler.lateness,
        epoch=service.scheduler.epoch,
        is_paused=lambda: service.store.read(find_pause) is not None,
        has_executors=lambda: not service.executor_problem(),
        maintenances=service.scheduler.count_maintenances,
        endings=service.scheduler.endings,
        occurrences=service.scheduler.occurrences,
        gates_shut=lambda: service.scheduler.shut_gates,
        jumps=lambda: service.clock_watch.number,
        refused=refused,
    )
