"""`forewarn scope`: settings of sets, services, scale sets and standalone virtual machines."""

from typing import Final

from forewarn.cli.arguments import ScopeArgument
from forewarn.cli.catalogue import noun
from forewarn.cli.options import DRY_RUN, Flag, Given, switch, taking, text
from forewarn.cli.output import Columns, fields_of
from forewarn.cli.patches import make_patch
from forewarn.cli.session import Session, command
from forewarn.cli.times import duration_option

app = noun("scope")

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
_SETTINGS: Final = {
    "approval": text("any|all|leader", "Whose approval starts an event."),
    "postpone_until": Flag(
        option=duration_option("Maximum postponement of an event.", can_clear=True)
    ),
    "auto_approve_user": Flag(kind=bool, option=switch("Approve user operations automatically.")),
    "terminate_notice": Flag(
        option=duration_option("Notice before a Terminate: 5m to 15m.", can_clear=True)
    ),
    "notice": Flag(option=duration_option("Notice before other events.", can_clear=True)),
}


@command(app, "show")
def show(session: Session, scope: ScopeArgument) -> None:
    """Show the settings of a scope and its virtual machines.

    Example: forewarn scope show web
    """
    session.show(session.get("scopes", scope), fields_of(_FIELDS))


@command(app, "set", DRY_RUN)
@taking(_SETTINGS)
def change(session: Session, given: Given, *, scope: ScopeArgument) -> None:
    """Change settings of a scope.

    The other settings stay as they are. An empty value resets a setting to its default.

    Example: forewarn scope set web --approval all
    """
    patch = make_patch("scope set", given)
    session.show(session.patch("scopes", scope, body=patch), fields_of(_FIELDS))
