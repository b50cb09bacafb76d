"""/sign-in-links: a browser is signed in to the console without a token being typed there."""

from datetime import datetime

from fastapi import APIRouter, Request

from forewarn.control.bodies import BodyRoute
from forewarn.control.caller import Viewing
from forewarn.desk.schemas import View
from forewarn.desk.sessions import Sessions

router = APIRouter(prefix="/sign-in-links", tags=["sign-in links"], route_class=BodyRoute)


class SignInLinkView(View):
    """A code that signs in one browser once, at `/login#CODE` of the console."""

    code: str
    expires_at: datetime


@router.post("", status_code=201, name="console link")
def create_sign_in_link(caller: Viewing, request: Request) -> SignInLinkView:
    """Create a link that signs in one browser with the token of the request.

    The code is only shown in this response.
    """
    sessions: Sessions = request.app.state.sessions
    code, expires_at = sessions.make_link(caller.principal, request.state.token_hash, caller.where)
    return SignInLinkView(code=code, expires_at=expires_at)
