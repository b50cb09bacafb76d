"""What is looked at on a KVM host that `forewarn host setup` has set up."""

import os
import socket
from collections.abc import Iterator
from typing import Final

from forewarn.domain.finding import Finding, doubtful, fine, wrong
from forewarn.host_setup.bindings import METADATA_ADDRESS, HostSetupError
from forewarn.host_setup.orders import SetupOrder, find_guests
from forewarn.host_setup.planning import (
    HostSetup,
    HostState,
    SetupRecord,
    find_unbound,
    plan_apply,
    protect,
)
from forewarn.host_setup.rules import METADATA_PORT
from forewarn.host_setup.this_host import ThisHost

_CHECK: Final = "host setup"
_AGAIN: Final = "try: forewarn host setup --apply, with the flags as before"
_OF_GUESTS: Final = frozenset({"tun"})
"""The kinds of ports that only guests have; any other may be an uplink."""
_TIMEOUT: Final = 2.0


def examine_host(host: ThisHost) -> Iterator[Finding]:
    """Look at the address, the rules, the ports and the listener, if *host* was ever set up."""
    if not host.directory.is_dir():
        return
    if os.geteuid() != 0:
        yield doubtful(_CHECK, "Only root can check the host setup.", "try: sudo forewarn doctor")
        return
    try:
        record = host.read_record()
        if record == SetupRecord():
            return
        if record.setup is None:
            sentence = "The last host setup was interrupted."
            yield wrong(_CHECK, sentence, "try: forewarn host setup --undo")
        else:
            state = host.observe(record, record.setup)
            yield from _compare(record.setup, state, record)
            yield from _guests(record.setup, state)
            yield from _newcomers(record.setup, host)
    except HostSetupError as error:
        yield wrong(_CHECK, str(error), error.hint or _AGAIN)
        return
    yield _listener()


def _compare(setup: HostSetup, state: HostState, record: SetupRecord) -> Iterator[Finding]:
    steps = plan_apply(setup, state, record).steps
    for step in steps:
        yield wrong(_CHECK, f"A step needs to be repeated: {step.sentence}", _AGAIN)
    if not steps:
        ports = len({each.port for each in protect(setup, state).bindings})
        sentence = f"{METADATA_ADDRESS} is on {', '.join(setup.places)}; bound ports: {ports}."
        yield fine(_CHECK, sentence)


def _guests(setup: HostSetup, state: HostState) -> Iterator[Finding]:
    unbound = find_unbound(setup, state)
    guests = [port for port in unbound if state.links[port].kind in _OF_GUESTS]
    if guests:
        sentence = f"Guests without a binding, which are not served: {', '.join(guests)}."
        yield doubtful("guest ports", sentence, "bind them, then: forewarn host setup --apply")
    else:
        others = f" Other ports: {', '.join(unbound)}." if unbound else ""
        yield fine("guest ports", f"Every port of a guest has a binding.{others}")


def _newcomers(setup: HostSetup, host: ThisHost) -> Iterator[Finding]:
    """Look for guests whose port, MAC or IP addresses are others than when rules were loaded."""
    if not setup.libvirt:
        return
    order = SetupOrder(bridge=setup.bridges, libvirt=setup.libvirt, fleet=setup.fleet)
    bindings, problems = find_guests(order, host.programs)
    # What an operator has declared has no name of a virtual machine, and wins.
    declared = {each.port for each in setup.bindings if not each.vm}
    known = {(each.port, each.mac, each.addresses) for each in setup.bindings}
    for each in bindings:
        if each.port not in declared and (each.port, each.mac, each.addresses) not in known:
            sentence = f"{each.vm} is not bound to {each.port} with the addresses of the fleet."
            yield wrong("guests", sentence, _AGAIN)
    for problem in problems:
        yield doubtful("guests", problem, "correct the fleet file")


def _listener() -> Finding:
    check, where = "guest listener", f"{METADATA_ADDRESS}:{METADATA_PORT}"
    try:
        with socket.create_connection((str(METADATA_ADDRESS), METADATA_PORT), _TIMEOUT):
            return fine(check, f"A program listens at {where}.")
    except OSError:
        hint = (
            "try: systemctl start forewarn-relay, or forewarn serve --metadata 169.254.169.254:80"
        )
        return wrong(check, f"Nothing listens at {where}.", hint)
