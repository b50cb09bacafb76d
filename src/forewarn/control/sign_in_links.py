"""/sign-in-links: a browser is signed in to the console without a token being typed there."""

from datetime import datetime

from fastapi import APIRouter, Request

from forewarn.control.caller import Viewing
from forewarn.desk.schemas import View
from forewarn.desk.sessions import Sessions

router = APIRouter(prefix="/sign-in-links", tags=["sign-in links"])


class SignInLinkView(View):
    """What signs in one browser, once: the console takes the code at `/login#CODE`."""

    code: str
    expires_at: datetime


@router.post("", status_code=201, name="console link")
def create_sign_in_link(caller: Viewing, request: Request) -> SignInLinkView:
    """Make a link that signs in one browser, with the token of the request.

    The answer is the only place its code is ever in.
    """
    code, expires_at = Sessions(caller.services).make_link(
        caller.principal, request.state.token_hash, caller.where
    )
    return SignInLinkView(code=code, expires_at=expires_at)
