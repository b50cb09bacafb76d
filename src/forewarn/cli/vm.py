"""`forewarn vm`: virtual machines one by one."""

from collections.abc import Mapping
from typing import Annotated, Final

import typer

from forewarn.cli.catalogue import noun
from forewarn.cli.completing import host_names, vm_names
from forewarn.cli.errors import CommandError, ExitCode, confirm
from forewarn.cli.event import Yes, show_begun
from forewarn.cli.output import Columns, Row, print_fields, print_line, print_table, time_of
from forewarn.cli.patches import Labels, make_patch, read_pairs
from forewarn.cli.rehearsal import DryRun, show_changed
from forewarn.cli.session import Session, command
from forewarn.cli.waiting import Timeout, Wait

app = noun("vm")

AvailabilitySet = Annotated[str | None, typer.Option(metavar="NAME", help="Its availability set.")]
CloudService = Annotated[str | None, typer.Option(metavar="NAME", help="Its cloud service.")]
ScaleSet = Annotated[str | None, typer.Option(metavar="NAME", help="Its scale set.")]
PlacementGroup = Annotated[
    str | None, typer.Option(metavar="NAME", help="Its placement group in the scale set.")
]
NewName = Annotated[str, typer.Argument(metavar="NAME", help="The virtual machine.")]
Name = Annotated[
    str,
    typer.Argument(metavar="NAME", help="The virtual machine.", autocompletion=vm_names),
]
AsIs = Annotated[bool, typer.Option("--as-is", help="State a fact, whatever its host is doing.")]


def _last_poll(vm: Row) -> object:
    return time_of(vm["last_polled_at"]) or "never"


COLUMNS: Final[Columns] = {
    "NAME": "name",
    "SCOPE": "scope_id",
    "UPDATE DOMAIN": "update_domain",
    "FAULT DOMAIN": "fault_domain",
    "HOST": "host",
    "ADDRESSES": "addresses",
    "LAST POLL": _last_poll,
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
    "last poll": _last_poll,
}


@command(app, "add")
def add(  # noqa: PLR0913 - one for each flag
    session: Session,
    name: NewName,
    *,
    availability_set: AvailabilitySet = None,
    cloud_service: CloudService = None,
    scale_set: ScaleSet = None,
    placement_group: PlacementGroup = None,
    update_domain: Annotated[
        int | None, typer.Option(metavar="N", help="Default: the one with the fewest.")
    ] = None,
    fault_domain: Annotated[
        int | None, typer.Option(metavar="N", help="Default: the one with the fewest.")
    ] = None,
    host: Annotated[
        str | None, typer.Option(metavar="NAME", help="The host that carries it.")
    ] = None,
    address: Annotated[
        list[str] | None, typer.Option(metavar="ADDRESS", help="An IP address; repeatable.")
    ] = None,
    vm_id: Annotated[str | None, typer.Option(metavar="UUID", help="Default: a new one.")] = None,
    as_is: AsIs = False,
    dry_run: DryRun = False,
) -> None:
    """Add one virtual machine to the fleet.

    Example: forewarn vm add web-0 --availability-set web --address 10.0.0.10
    """
    declared = {
        "name": name,
        "availability_set": availability_set,
        "cloud_service": cloud_service,
        "scale_set": scale_set,
        "placement_group": placement_group,
        "update_domain": update_domain,
        "fault_domain": fault_domain,
        "host": host,
        "addresses": address,
        "vm_id": vm_id,
    }
    added = session.post("virtual-machines", body=declared, dry_run=dry_run, as_is=as_is)
    show_changed(session, added, _print_one, dry_run=dry_run)


@command(app, "list")
def list_all(session: Session) -> None:
    """List every virtual machine, in fleet order.

    Example: forewarn vm list -o json
    """
    found = session.list("virtual_machines", "virtual-machines")
    session.show(found, lambda got: print_table(got["virtual_machines"], COLUMNS))


@command(app, "show")
def show(session: Session, name: Name) -> None:
    """Show one virtual machine.

    Example: forewarn vm show web-0
    """
    session.show(session.get("virtual-machines", name), _print_fields)


@command(app, "remove")
def remove(session: Session, name: Name, *, yes: Yes = False, dry_run: DryRun = False) -> None:
    """Take one virtual machine out of the fleet.

    Example: forewarn vm remove web-0 --yes
    """
    confirm(f"Take {name} out of the fleet?", yes=yes or dry_run)
    change = session.delete("virtual-machines", name, dry_run=dry_run)
    said = "would remove" if dry_run else "removed"
    show_changed(session, change, lambda got: _print_removed(said, got), dry_run=dry_run)


@command(app, "move")
def move(  # noqa: PLR0913 - one for each flag
    session: Session,
    name: Name,
    *,
    host: Annotated[
        str | None,
        typer.Option(metavar="NAME", help="The host it goes to.", autocompletion=host_names),
    ] = None,
    availability_set: AvailabilitySet = None,
    cloud_service: CloudService = None,
    scale_set: ScaleSet = None,
    placement_group: PlacementGroup = None,
    standalone: Annotated[bool, typer.Option("--standalone", help="Leave its set.")] = False,
    update_domain: Annotated[
        int | None, typer.Option(metavar="N", help="Default: as now, or the one with the fewest.")
    ] = None,
    fault_domain: Annotated[
        int | None, typer.Option(metavar="N", help="Default: as now, or the one with the fewest.")
    ] = None,
    as_is: AsIs = False,
    new_host: Annotated[
        bool, typer.Option("--new-host", help="Add the host if it is unknown.")
    ] = False,
    dry_run: DryRun = False,
) -> None:
    """Move one virtual machine to another host, set or domain.

    Its other fields stay as they are.

    Example: forewarn vm move web-0 --host kvm-2
    """
    sets = {
        "availability_set": availability_set,
        "cloud_service": cloud_service,
        "scale_set": scale_set,
    }
    patch = make_patch(
        "vm move",
        host=host,
        update_domain=update_domain,
        fault_domain=fault_domain,
        **_membership(sets, placement_group, standalone=standalone),
    )
    flags = {"dry_run": dry_run, "as_is": as_is, "new_host": new_host}
    changed = session.patch("virtual-machines", name, body=patch, **flags)
    show_changed(session, changed, _print_one, dry_run=dry_run)


@command(app, "set")
def set_fields(  # noqa: PLR0913 - one for each flag
    session: Session,
    name: Name,
    *,
    address: Annotated[
        list[str] | None,
        typer.Option(metavar="ADDRESS", help="An IP address; repeatable, replaces all."),
    ] = None,
    label: Labels = None,
    tag: Annotated[
        list[str] | None, typer.Option(metavar="KEY=VALUE", help="A tag; KEY= removes it.")
    ] = None,
    profile: Annotated[
        list[str] | None,
        typer.Option(metavar="KEY=VALUE", help="Such as vm_size=D2; KEY= removes it."),
    ] = None,
    zone: Annotated[str | None, typer.Option(metavar="ZONE", help="Its zone.")] = None,
    location: Annotated[str | None, typer.Option(metavar="NAME", help="Its location.")] = None,
    resource_group: Annotated[
        str | None, typer.Option(metavar="NAME", help="Its resource group.")
    ] = None,
    subscription_id: Annotated[
        str | None, typer.Option(metavar="ID", help="Its subscription.")
    ] = None,
    vm_id: Annotated[str | None, typer.Option(metavar="UUID", help="Its vm_id.")] = None,
    dry_run: DryRun = False,
) -> None:
    """Change fields of one virtual machine.

    The other fields stay as they are. An empty text clears a field.

    Example: forewarn vm set web-0 --label rack=a --zone 2
    """
    patch = make_patch(
        "vm set",
        addresses=address or None,
        labels=read_pairs("--label", label),
        tags=read_pairs("--tag", tag),
        profile=read_pairs("--profile", profile),
        zone=zone,
        location=location,
        resource_group=resource_group,
        subscription_id=subscription_id,
        vm_id=vm_id,
    )
    changed = session.patch("virtual-machines", name, body=patch, dry_run=dry_run)
    show_changed(session, changed, _print_fields, dry_run=dry_run)


@command(app, "restart")
def restart(
    session: Session,
    name: Name,
    *,
    dry_run: DryRun = False,
    wait: Wait = False,
    timeout: Timeout = None,
) -> None:
    """Restart a virtual machine as its owner would: announce a Reboot.

    The command returns once the event is announced; with --wait, when it has ended.
    The Reboot starts when the machine approves it, and at NotBefore at the latest. The
    server's executor then carries it out; with the manual one, that is up to you.

    Example: forewarn vm restart web-0
    """
    event = session.post("virtual-machines", name, "restart", dry_run=dry_run)
    show_begun(session, event, dry_run=dry_run, wait=wait, timeout=timeout)


@command(app, "redeploy")
def redeploy(
    session: Session,
    name: Name,
    *,
    dry_run: DryRun = False,
    wait: Wait = False,
    timeout: Timeout = None,
) -> None:
    """Redeploy a virtual machine as its owner would.

    This announces a Redeploy, which works like a restart: forewarn vm restart --help.

    Example: forewarn vm redeploy web-0
    """
    event = session.post("virtual-machines", name, "redeploy", dry_run=dry_run)
    show_begun(session, event, dry_run=dry_run, wait=wait, timeout=timeout)


def _membership(
    sets: Mapping[str, str | None], placement_group: str | None, *, standalone: bool
) -> dict[str, str | None]:
    """Return which set is joined, with empty texts for what is left thereby."""
    joined = [key for key, value in sets.items() if value is not None]
    if len(joined) + standalone > 1:
        flags = ["--" + key.replace("_", "-") for key in joined] + ["--standalone"] * standalone
        message = f"A virtual machine can only be in one of {' and '.join(flags)}."
        raise CommandError(message, code=ExitCode.USAGE, hint="try: forewarn vm move --help")
    if not joined and not standalone:
        return {"placement_group": placement_group}
    return {
        **{key: value or "" for key, value in sets.items()},
        "placement_group": placement_group or "",
    }


def _print_fields(vm: Row) -> None:
    print_fields(vm, _FIELDS)


def _print_removed(said: str, change: Row) -> None:
    print_line(f"{said} {', '.join(change['removed'])}")


def _print_one(vm: Row) -> None:
    print_table([vm], COLUMNS)
