"""`forewarn token`: who may use the control API, and what they may do there."""

from contextlib import closing
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Final

import typer

from forewarn.cli.catalogue import noun
from forewarn.cli.errors import CommandError, ExitCode, reported_errors
from forewarn.cli.failures import ServerRefusedError
from forewarn.cli.options import ConfigFile, argument, option
from forewarn.cli.output import (
    Columns,
    Row,
    print_fields,
    print_line,
    print_table,
    table_of,
    wall_time_of,
)
from forewarn.cli.serve import warn_of_password
from forewarn.cli.session import Session, command
from forewarn.cli.times import ahead_option
from forewarn.clocks import SystemClock
from forewarn.domain.roles import MAY, Role
from forewarn.environment import ADMIN_TOKEN_FILE
from forewarn.settings_table import LogLevel

if TYPE_CHECKING:
    from forewarn.settings import Settings

app = noun("token")

Name = Annotated[str, argument("NAME", "Name of the token.")]

_COLUMNS: Final[Columns] = {
    "name": "name",
    "role": "role",
    "scopes": "scopes",
    "host": "host",
    "created": lambda token: wall_time_of(token["created_at"]),
    "expires": lambda token: wall_time_of(token["expires_at"]),
    "last used": lambda token: wall_time_of(token["last_used_at"]),
    "revoked": lambda token: wall_time_of(token["revoked_at"]),
}
_FIELDS: Final[Columns] = {
    "token": "secret",
    "name": "name",
    "role": "role",
    "may": lambda token: MAY[Role(token["role"])],
    "scopes": "scopes",
    "host": "host",
    "expires": lambda token: wall_time_of(token["expires_at"]),
}


@command(app, "create")
def create(
    session: Session,
    name: Annotated[
        str | None, argument("NAME", "Name of the token's owner, for the audit log.")
    ] = None,
    *,
    role: Annotated[
        Role | None, typer.Option(case_sensitive=False, help="Role of the token.")
    ] = None,
    relay: Annotated[
        str | None, option("HOST", "Create the token of HOST for forewarn relay and host work.")
    ] = None,
    scope: Annotated[
        list[str] | None, option("NAME", "Only this set, service or machine; repeatable.")
    ] = None,
    expires: Annotated[str | None, ahead_option("Expiry (default: never)")] = None,
) -> None:
    """Create a token and print its secret once.

    The default NAME of a relay's token is relay-HOST.

    Example: forewarn token create deploy --role operator --scope web --expires 30d

    Example: forewarn token create --relay kvm-1
    """
    if relay is not None:
        order = _order_for_relay(relay, name, role, scope)
    elif name is None or role is None or role is Role.RELAY:
        raise _misuse("Give NAME and --role, or --relay HOST for a relay.")
    else:
        order = {"name": name, "role": role, "scopes": scope or []}
    token = session.post("tokens", body={**order, "expires": expires}, takes_key=False)
    session.show(token, _print_new)
    if relay is not None:
        _note_unknown_host(session, relay)


@command(app, "list")
def list_all(session: Session) -> None:
    """List all tokens, including expired and revoked ones.

    Example: forewarn token list
    """
    session.show(session.get("tokens"), table_of("tokens", _COLUMNS))


@command(app, "revoke")
def revoke(session: Session, name: Name) -> None:
    """Revoke a token.

    Example: forewarn token revoke deploy
    """
    session.show(session.delete("tokens", name), lambda row: print_table([row], _COLUMNS))


@app.command("renew-admin")
def renew_admin(
    *,
    state_dir: Annotated[Path | None, option("DIR", "The server's state directory.")] = None,
    database: Annotated[str | None, option("URL", "Database (default: from the settings).")] = None,
    config: ConfigFile = None,
) -> None:
    """Replace the admin token; run this where the server runs.

    Use this if the token is lost or has leaked. A running server accepts the new token
    and rejects the old one at once.

    Example: forewarn token renew-admin --state-dir /var/lib/forewarn
    """
    with reported_errors("token renew-admin"):
        from forewarn.bootstrap.start import renew_admin_token  # noqa: PLC0415 - server install
        from forewarn.settings import load_settings  # noqa: PLC0415 - slow to load

        warn_of_password(database)
        settings = load_settings({"state_dir": state_dir, "database": database}, config)
        if settings.is_shared:
            print_line(f"{_renew_shared(settings)} has a new admin token")
            return
        directory = settings.state_directory
        known = (directory / ADMIN_TOKEN_FILE, settings.database_path)
        if not any(path.exists() for path in known):
            message = f"{directory} contains no admin token."
            hint = "try: --state-dir DIR, or --config FILE"
            raise CommandError(message, code=ExitCode.NOT_FOUND, hint=hint)
        print_line(f"{renew_admin_token(directory)} has a new admin token")


def _order_for_relay(
    host: str, name: str | None, role: Role | None, scopes: list[str] | None
) -> Row:
    if role is not None:
        raise _misuse("--role cannot be used with --relay, which implies the role relay.")
    if scopes:
        raise _misuse(
            "--scope cannot be used with --relay: a relay serves all machines on its host."
        )
    return {"name": name or f"relay-{host}", "role": Role.RELAY, "host": host}


def _note_unknown_host(session: Session, host: str) -> None:
    try:
        session.get("hosts", host)
    except ServerRefusedError:
        print_line(f"Note: the fleet has no host {host!r} yet.", err=True)


def _misuse(message: str) -> CommandError:
    return CommandError(message, code=ExitCode.USAGE, hint="try: forewarn token create --help")


def _renew_shared(settings: "Settings") -> Path:
    from forewarn.bootstrap.start import renew_shared_admin_token  # noqa: PLC0415 - server install
    from forewarn.storage.administration import open_shared  # noqa: PLC0415 - server install
    from forewarn.telemetry.logs import configure_logging  # noqa: PLC0415 - server install

    configure_logging(settings.log_format, LogLevel.ERROR)
    with closing(open_shared(settings.database)) as store:
        return renew_shared_admin_token(store, settings, SystemClock().now())


def _print_new(token: Row) -> None:
    print_fields(token, _FIELDS)
    print_line("Store the token now; it is not shown again.", err=True)
