"""`forewarn scope`: settings of sets, services, scale sets and standalone virtual machines."""

from typing import Annotated, Final

import typer

from forewarn.cli.catalogue import noun
from forewarn.cli.completing import scope_names
from forewarn.cli.output import Columns, Row, print_fields
from forewarn.cli.patches import make_patch
from forewarn.cli.rehearsal import DryRun, show_changed
from forewarn.cli.session import Session, command
from forewarn.cli.times import duration_option

app = noun("scope")

Name = Annotated[
    str,
    typer.Argument(
        metavar="SCOPE", help="A set or standalone machine.", autocompletion=scope_names
    ),
]

_FIELDS: Final[Columns] = {
    "scope": "name",
    "kind": "scope_kind",
    "approval": "approval",
    "postpone until": "postpone_until",
    "auto approve user": "auto_approve_user",
    "terminate notice": "terminate_notice",
    "notice": "notice",
    "virtual machines": "virtual_machines",
}


@command(app, "show")
def show(session: Session, scope: Name) -> None:
    """Show the settings of a scope and its virtual machines.

    Example: forewarn scope show web
    """
    session.show(session.get("scopes", scope), _print_scope)


@command(app, "set")
def set_fields(  # noqa: PLR0913 - one for each flag
    session: Session,
    scope: Name,
    *,
    approval: Annotated[
        str | None, typer.Option(metavar="any|all|leader", help="Whose approval starts an event.")
    ] = None,
    postpone_until: Annotated[
        str | None, duration_option("How far events may be postponed.", can_clear=True)
    ] = None,
    auto_approve_user: Annotated[
        bool | None, typer.Option(help="Approve what its owner asked for.")
    ] = None,
    terminate_notice: Annotated[
        str | None, duration_option("Notice of a Terminate, 5m to 15m.", can_clear=True)
    ] = None,
    notice: Annotated[
        str | None, duration_option("Notice of other events.", can_clear=True)
    ] = None,
    dry_run: DryRun = False,
) -> None:
    """Change settings of a scope.

    The other settings stay as they are. An empty text resets a setting to its default.

    Example: forewarn scope set web --approval all
    """
    patch = make_patch(
        "scope set",
        approval=approval,
        postpone_until=postpone_until,
        auto_approve_user=auto_approve_user,
        terminate_notice=terminate_notice,
        notice=notice,
    )
    changed = session.patch("scopes", scope, body=patch, dry_run=dry_run)
    show_changed(session, changed, _print_scope, dry_run=dry_run)


def _print_scope(scope: Row) -> None:
    print_fields(scope, _FIELDS)
