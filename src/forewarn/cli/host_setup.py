"""`forewarn host setup`: 169.254.169.254 on this host, for its guests and nobody else."""

import sys
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, fields
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any, Final

from forewarn.cli.errors import CommandError, ExitCode, reported_errors
from forewarn.cli.options import keyword, option, switch
from forewarn.cli.output import Output, OutputOption, Row, print_answer, print_line

if TYPE_CHECKING:
    from forewarn.host_setup.orders import Ordered
    from forewarn.host_setup.this_host import ThisHost

OPTIONS: Final = (
    keyword(
        "apply", Annotated[bool, switch("Change this host; needs root.", "--apply")], default=False
    ),
    keyword(
        "undo",
        Annotated[bool, switch("Remove everything that host setup added.", "--undo")],
        default=False,
    ),
    keyword(
        "dry_run",
        Annotated[bool, switch("Only print the commands (the default).", "--dry-run")],
        default=False,
    ),
    keyword(
        "bridge",
        Annotated[list[str] | None, option("NAME", "Bridge of guests; repeatable.")],
    ),
    keyword(
        "interface",
        Annotated[str | None, option("NAME", "Interface for the address, instead of bridges.")],
    ),
    keyword(
        "binding",
        Annotated[
            list[str] | None,
            option("PORT=MAC,ADDRESS", "Port of a guest and its addresses; repeatable."),
        ],
    ),
    keyword("libvirt", Annotated[str | None, option("URI", "Take ports and MACs from libvirt.")]),
    keyword("fleet", Annotated[Path | None, option("FILE", "Take addresses from a fleet file.")]),
    keyword(
        "dnsmasq", Annotated[Path | None, option("DIR", "Write DHCP options for dnsmasq here.")]
    ),
    keyword(
        "network", Annotated[str | None, option("NAME", "Print DHCP options of a libvirt network.")]
    ),
    keyword(
        "router", Annotated[str | None, option("ADDRESS", "Default route of guests, or 'none'.")]
    ),
    keyword("config", Annotated[Path | None, option("FILE", "Setup file; flags override it.")]),
    keyword(
        "state_dir", Annotated[Path | None, option("DIR", "Directory for the record of changes.")]
    ),
    keyword("output", OutputOption, Output.TABLE),
)


def setup(**flags: Any) -> None:
    """Serve 169.254.169.254 to the guests of this host only.

    It adds the address to a bridge, loads nftables rules that keep each guest to its own
    MAC and IP addresses, and writes DHCP options. Without --apply, it only prints the
    commands. Run it again after a guest has started.

    Example: forewarn host setup --bridge br0 --binding vnet0=52:54:00:00:00:11,10.0.0.11

    Example: forewarn host setup --config /etc/forewarn/host.toml --apply

    Example: forewarn host setup --undo
    """
    with reported_errors("host setup"):
        if sys.platform != "linux":
            raise CommandError("forewarn host setup needs Linux.", code=ExitCode.USAGE)
        output = flags.pop("output")
        wish = _Wish(**{each.name: flags.pop(each.name) for each in fields(_Wish)})
        if wish.apply and wish.undo:
            raise CommandError("--apply and --undo cannot be used together.", code=ExitCode.USAGE)
        from forewarn.host_setup.bindings import (  # noqa: PLC0415 - slow to load
            HostSetupError,
            SetupOrderError,
        )

        try:
            done = _set_up(wish, flags)
        except HostSetupError as error:
            code = ExitCode.USAGE if isinstance(error, SetupOrderError) else ExitCode.FAILED
            raise CommandError(str(error), code=code, hint=error.hint) from None
        print_answer(done, output, _print)


@dataclass(frozen=True, slots=True, kw_only=True)
class _Wish:
    """How the command is meant."""

    apply: bool
    undo: bool
    dry_run: bool
    state_dir: Path | None

    @property
    def is_meant(self) -> bool:
        return (self.apply or self.undo) and not self.dry_run


def _set_up(wish: _Wish, flags: Row) -> Row:
    from forewarn.host_setup.steps import as_command  # noqa: PLC0415 - slow to load
    from forewarn.host_setup.this_host import ThisHost  # noqa: PLC0415

    place = wish.state_dir
    host = ThisHost() if place is None else ThisHost(directory=place.absolute())
    notes: Sequence[str] = ()
    if wish.undo:
        steps = host.undo() if wish.is_meant else host.foresee_undo().steps
    else:
        ordered = _follow(host, flags)
        steps = host.apply(ordered.setup) if wish.is_meant else host.foresee(ordered.setup).steps
        notes = (*ordered.notes, *_unbound(host, ordered))
    return {
        "is_applied": wish.is_meant,
        "steps": [{"sentence": each.sentence, "command": as_command(each)} for each in steps],
        "notes": list(notes),
    }


def _follow(host: "ThisHost", flags: Row) -> "Ordered":
    from forewarn.host_setup.bindings import parse_binding  # noqa: PLC0415 - slow to load
    from forewarn.host_setup.orders import (  # noqa: PLC0415
        SetupOrder,
        follow,
        override,
        read_order,
    )

    given = {name: value for name, value in flags.items() if value}
    config = given.pop("config", None)
    bindings = tuple(map(parse_binding, given.pop("binding", ())))
    bridges = tuple(given.pop("bridge", ()))
    typed = SetupOrder(bindings=bindings, bridge=bridges, **given)
    order = typed if config is None else override(read_order(config), typed)
    return follow(order, host.programs)


def _unbound(host: "ThisHost", ordered: "Ordered") -> Iterator[str]:
    from forewarn.host_setup.planning import find_unbound  # noqa: PLC0415 - slow to load

    state = host.observe(host.read_record())
    absent = [each.port for each in ordered.setup.bindings if each.port not in state.links]
    if absent:
        yield (
            f"Ports that do not exist: {', '.join(absent)}. "
            "Run this again when their guests have started."
        )
    ports = find_unbound(ordered.setup, state)
    if ports:
        yield f"Ports without a binding, which cannot reach 169.254.169.254: {', '.join(ports)}."


def _print(answer: Row) -> None:
    steps = answer["steps"]
    if not steps:
        print_line("There is nothing to do.")
    elif answer["is_applied"]:
        print_line("Changed this host:")
        for step in steps:
            print_line(f"  {step['sentence']}")
    else:
        print_line("# Nothing was changed. These commands would run:")
        for step in steps:
            for line in step["command"].splitlines():
                print_line(line)
    for note in answer["notes"]:
        for number, line in enumerate(note.splitlines()):
            print_line(f"# {line}" if number == 0 else line)
