"""Tokens, as operators give them to somebody."""

from dataclasses import replace

from forewarn.desk.caller import Caller
from forewarn.domain.access import Token
from forewarn.operations.access import TokenOrder, create_token, new_secret
from forewarn.operations.context import Context
from forewarn.ports.store import Transaction
from forewarn.wording.moments import parse_ahead, resolve


def give_token(caller: Caller, order: TokenOrder, expires: str | None) -> tuple[Token, str]:
    """Make a token that *expires* then, and return it with its secret, which is nowhere else."""
    moment = None if expires is None else parse_ahead(expires, caller.context().at)
    secret = new_secret()

    def operation(tx: Transaction, context: Context) -> Token:
        expires_at = None if moment is None else resolve(moment, context.at)
        return create_token(tx, context, replace(order, expires_at=expires_at), secret)

    return caller.write(operation), secret
