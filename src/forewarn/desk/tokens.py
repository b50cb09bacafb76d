"""Tokens, as operators give them to somebody."""

from forewarn.desk.caller import Caller
from forewarn.domain.access import Token
from forewarn.domain.roles import Role
from forewarn.operations.access import TokenOrder, create_token, new_secret
from forewarn.operations.context import Context
from forewarn.ports.store import Transaction
from forewarn.wording.moments import parse_ahead, resolve


def give_token(
    caller: Caller, *, name: str, role: Role, scopes: tuple[str, ...], expires: str | None
) -> tuple[Token, str]:
    """Make a token that *expires* then, and return it with its secret, which is nowhere else."""
    moment = None if expires is None else parse_ahead(expires, caller.context().at)
    secret = new_secret()

    def operation(tx: Transaction, context: Context) -> Token:
        order = TokenOrder(
            name=name,
            role=role,
            scopes=scopes,
            expires_at=None if moment is None else resolve(moment, context.at),
        )
        return create_token(tx, context, order, secret)

    return caller.write(operation), secret
