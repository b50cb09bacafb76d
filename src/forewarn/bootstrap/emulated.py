"""What the metadata endpoint of an emulator does beyond that of a server."""

from dataclasses import replace
from functools import partial

from forewarn.bootstrap.replica import Replica
from forewarn.domain.access import ADMIN
from forewarn.domain.topology import VirtualMachine
from forewarn.files.fleet import read_fleet, standalone_vms
from forewarn.files.recording import Recording
from forewarn.metadata.http import App
from forewarn.metadata.newcomers import Newcomers
from forewarn.metadata.replay import Replay
from forewarn.operations.inventory import apply_fleet
from forewarn.ports.entries import Actor


def with_any_vm(replica: Replica, app: App) -> App:
    """Return *app* as one that knows every virtual machine that names itself in the path."""
    return Newcomers(app, add=partial(_add, replica))


def with_recording(recording: Recording, speed: float, replica: Replica, app: App) -> App:
    """Return *app* as one that shows *recording* to every virtual machine."""
    return Replay(with_any_vm(replica, app), recording.answers, speed=speed)


def _add(replica: Replica, name: str) -> VirtualMachine | None:
    fleet = read_fleet(standalone_vms(name))
    context = replace(replica.context(ADMIN), actor=Actor.SERVER)
    replica.store.write(lambda tx: apply_fleet(tx, context, fleet))
    replica.settle()
    return replica.board.vm_named(name)
