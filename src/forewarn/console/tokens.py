"""/tokens: who may use this server."""

from collections.abc import Mapping
from dataclasses import dataclass
from datetime import datetime
from typing import Final

from forewarn.console.visit import (
    ActionRoute,
    ConsoleRoute,
    Done,
    FormError,
    Fragment,
    Page,
    PageRoute,
    Visit,
)
from forewarn.desk.tokens import give_token
from forewarn.domain.access import SESSION_IDLE, Token
from forewarn.domain.roles import LADDER, MAY, Role
from forewarn.operations.access import TokenOrder, revoke_token

_ENDED_SHOWN: Final = 100

TONES: Final[Mapping[str, str]] = {"active": "ok", "expired": "quiet", "revoked": "failed"}
"""The colour of each state of a token."""


@dataclass(frozen=True, slots=True, kw_only=True)
class TokenLine:
    """A token and whether it grants anything: active, expired or revoked."""

    token: Token
    state: str
    tone: str


def show_tokens(visit: Visit) -> Page:
    """Show every token, the newest first, those that grant nothing any more apart."""
    at = visit.caller.context().at
    lines = [_line(token, at) for token in reversed(visit.read(lambda reading: reading.tokens()))]
    ended = [line for line in lines if line.state != "active"]
    return Page(
        title="Tokens",
        template="tokens.html",
        values={
            "active": [line for line in lines if line.state == "active"],
            "ended": ended[:_ENDED_SHOWN],
            "more_ended": max(0, len(ended) - _ENDED_SHOWN),
            "roles": {role: MAY[role] for role in LADDER},
            "idle": SESSION_IDLE,
        },
    )


def create(visit: Visit) -> Fragment:
    """Make a token, and show its secret: this answer is the only place that it is ever in."""
    form = visit.form
    name = form.text("name")
    if not name:
        raise FormError("Enter the name of the person or program that uses the token.")
    try:
        role = Role(form.text("role"))
    except ValueError:
        raise FormError("Choose a role.") from None
    order = TokenOrder(name=name, role=role, scopes=form.lines("scopes"))
    token, secret = give_token(visit.caller, order, form.text("expires") or None)
    return Fragment(template="token_secret.html", values={"token": token, "secret": secret})


def revoke(visit: Visit) -> Done:
    """Take a token back."""
    name = visit.path_values["name"]
    revoked = visit.caller.write(lambda tx, context: revoke_token(tx, context, name))
    return Done(message=f"Revoked the token {revoked.name}.")


def _line(token: Token, at: datetime) -> TokenLine:
    ended = "expired" if token.revoked_at is None else "revoked"
    state = "active" if token.is_live(at) else ended
    return TokenLine(token=token, state=state, tone=TONES[state])


ROUTES: Final[tuple[ConsoleRoute, ...]] = (
    PageRoute(path="/tokens", show=show_tokens, role=Role.ADMIN),
    ActionRoute(path="/tokens", act=create, role=Role.ADMIN, name="token create"),
    ActionRoute(
        path="/tokens/{name}/revoke",
        act=revoke,
        role=Role.ADMIN,
        name="token revoke",
        subject="name",
    ),
)
