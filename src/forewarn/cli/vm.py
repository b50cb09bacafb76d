"""`forewarn vm`: virtual machines one by one."""

from typing import Annotated, Final

from forewarn.cli.arguments import VmArgument, host_names
from forewarn.cli.catalogue import noun
from forewarn.cli.errors import CommandError, ExitCode
from forewarn.cli.event import show_events
from forewarn.cli.options import (
    AS_IS,
    BEGINS,
    DRY_RUN,
    YES,
    Flag,
    Given,
    argument,
    option,
    some,
    taking,
    text,
    toggle,
)
from forewarn.cli.output import Columns, Row, fields_of, pick, print_table, table_of, time_of
from forewarn.cli.patches import LABELS, make_patch, pairs
from forewarn.cli.session import Session, command

app = noun("vm")

_SETS: Final = {
    "availability_set": text("NAME", "Availability set."),
    "cloud_service": text("NAME", "Cloud service."),
    "scale_set": text("NAME", "Scale set."),
}
_PLACEMENT_GROUP: Final = text("NAME", "Placement group in the scale set.")
_NEW_DOMAIN: Final = Flag(
    kind=int, option=option("N", "Number (default: the one with the fewest VMs).")
)
_DOMAIN: Final = Flag(
    kind=int, option=option("N", "Number (default: unchanged, or the one with the fewest VMs).")
)
_DECLARED: Final = {
    **_SETS,
    "placement_group": _PLACEMENT_GROUP,
    "update_domain": _NEW_DOMAIN,
    "fault_domain": _NEW_DOMAIN,
    "host": text("NAME", "Host that the machine runs on."),
    "address": some("ADDRESS", "IP address; repeatable.", "addresses"),
    "vm_id": text("UUID", "VM id (default: a new one)."),
    "as_is": AS_IS,
}
_PLACE: Final = {
    "host": text("NAME", "Host to move to.", autocompletion=host_names),
    **_SETS,
    "placement_group": _PLACEMENT_GROUP,
    "standalone": toggle("--standalone", "Remove the machine from its set."),
    "update_domain": _DOMAIN,
    "fault_domain": _DOMAIN,
    "as_is": AS_IS,
    "new_host": toggle("--new-host", "Create the host if it is unknown."),
}
_SETTABLE: Final = {
    "address": some("ADDRESS", "IP address; repeatable, replaces all.", "addresses"),
    "label": LABELS,
    "tag": pairs("--tag", "Tag to set; KEY= removes it.", "tags"),
    "profile": pairs("--profile", "Instance metadata such as vm_size=D2; KEY= removes it."),
    "zone": text("ZONE", "Availability zone."),
    "location": text("NAME", "Location."),
    "resource_group": text("NAME", "Resource group."),
    "subscription_id": text("ID", "Subscription id."),
    "vm_id": text("UUID", "VM id."),
}
_FIELDS: Final[Columns] = {
    "name": "name",
    "scope": "scope_id",
    "update domain": "update_domain",
    "fault domain": "fault_domain",
    "host": "host",
    "addresses": "addresses",
    "vm_id": "vm_id",
    "role": "role",
    "zone": "zone",
    "location": "location",
    "resource group": "resource_group",
    "subscription": "subscription_id",
    "tags": "tags",
    "labels": "labels",
    "profile": "profile",
    "last poll": lambda vm: time_of(vm["last_polled_at"]) or "never",
}
COLUMNS: Final = pick(
    _FIELDS, "name", "scope", "update domain", "fault domain", "host", "addresses", "last poll"
)


@command(app, "add", DRY_RUN)
@taking(_DECLARED)
def add(
    session: Session,
    declared: Given,
    *,
    name: Annotated[str, argument("NAME", "Name of the virtual machine.")],
) -> None:
    """Add one virtual machine to the fleet.

    Example: forewarn vm add web-0 --availability-set web --address 10.0.0.10
    """
    as_is = declared.pop("as_is")
    added = session.post("virtual-machines", body={"name": name, **declared}, as_is=as_is)
    session.show(added, _print_one)


@command(app, "list")
def list_all(session: Session) -> None:
    """List every virtual machine, in fleet order.

    Example: forewarn vm list -o json
    """
    session.show(session.list("virtual-machines"), table_of("virtual_machines", COLUMNS))


@command(app, "show")
def show(session: Session, name: VmArgument) -> None:
    """Show one virtual machine.

    Example: forewarn vm show web-0
    """
    session.show(session.get("virtual-machines", name), fields_of(_FIELDS))


@command(app, "remove", YES, DRY_RUN)
def remove(session: Session, name: VmArgument) -> None:
    """Remove one virtual machine from the fleet.

    Example: forewarn vm remove web-0 --yes
    """
    session.confirm(f"Remove {name} from the fleet?")
    change = session.delete("virtual-machines", name)
    session.show_removed(change, ", ".join(change["removed"]))


@command(app, "move", DRY_RUN)
@taking(_PLACE)
def move(session: Session, given: Given, *, name: VmArgument) -> None:
    """Move one virtual machine to another host, set or domain.

    Its other fields stay as they are.

    Example: forewarn vm move web-0 --host kvm-2
    """
    flags = {name: given.pop(name) for name in ("as_is", "new_host")}
    patch = make_patch("vm move", _leave_others(given, standalone=given.pop("standalone")))
    session.show(session.patch("virtual-machines", name, body=patch, **flags), _print_one)


@command(app, "set", DRY_RUN)
@taking(_SETTABLE)
def change(session: Session, given: Given, *, name: VmArgument) -> None:
    """Change fields of one virtual machine.

    The other fields stay as they are. An empty value clears a field.

    Example: forewarn vm set web-0 --label rack=a --zone 2
    """
    patch = make_patch("vm set", given)
    session.show(session.patch("virtual-machines", name, body=patch), fields_of(_FIELDS))


@command(app, "restart", *BEGINS)
def restart(session: Session, name: VmArgument) -> None:
    """Restart a virtual machine as its owner would, with a Reboot event.

    The command returns once the event is announced; with --wait, when it has ended.
    The Reboot starts when the machine approves it, and at NotBefore at the latest. The
    server's executor then carries it out; with the manual executor, you do.

    Example: forewarn vm restart web-0
    """
    show_events(session, session.post("virtual-machines", name, "restart"))


@command(app, "redeploy", *BEGINS)
def redeploy(session: Session, name: VmArgument) -> None:
    """Redeploy a virtual machine as its owner would.

    It announces a Redeploy event, which proceeds like the Reboot of forewarn vm restart.

    Example: forewarn vm redeploy web-0
    """
    show_events(session, session.post("virtual-machines", name, "redeploy"))


def _leave_others(given: Given, *, standalone: bool) -> Given:
    """Return *given* with empty texts for the sets that are left by joining one, or none."""
    joined = [key for key in _SETS if key in given]
    if len(joined) + standalone > 1:
        flags = ["--" + key.replace("_", "-") for key in joined] + ["--standalone"] * standalone
        message = f"{' and '.join(flags)} cannot be used together."
        raise CommandError(message, code=ExitCode.USAGE, hint="try: forewarn vm move --help")
    left = dict.fromkeys((*_SETS, "placement_group"), "") if joined or standalone else {}
    return {**left, **given}


def _print_one(vm: Row) -> None:
    print_table([vm], COLUMNS)
