"""What is looked at in the server that answers: its time, the token, and its own findings."""

from collections.abc import Iterator
from datetime import datetime, timedelta
from email.utils import parsedate_to_datetime
from http import HTTPStatus
from typing import Final

from forewarn.cli.errors import CommandError
from forewarn.cli.failures import ServerRefusedError
from forewarn.cli.session import Session
from forewarn.domain.finding import Finding, FindingVerdict, doubtful, fine, read_finding, wrong
from forewarn.wording.durations import format_duration

SKEWED: Final = timedelta(seconds=5)
"""By so much two clocks may differ before it is worth a warning."""
UNUSABLY_SKEWED: Final = timedelta(minutes=1)
"""From here on NotBefore means something else there than here."""

_TOKEN: Final = frozenset({HTTPStatus.UNAUTHORIZED, HTTPStatus.FORBIDDEN})


def examine_server(session: Session, now: datetime) -> Iterator[Finding]:
    """Look at the server of *session*; *now* is the time of this machine.

    The server finds the rest itself, for all its replicas, whichever of them answers.
    """
    refusal: ServerRefusedError | None = None
    server = {}
    try:
        answer = session.fetch("healthz")
        try:
            server = session.get("server")
        except ServerRefusedError as error:
            refusal = error
    except CommandError as error:
        yield wrong("control endpoint", str(error), error.hint)
        return
    yield fine("control endpoint", f"{session.server} answers.")
    skew = _skew(answer.headers.get("date"), now)
    if refusal is not None:
        yield skew
        check = "token" if refusal.problem["status"] in _TOKEN else "findings"
        yield wrong(check, str(refusal), refusal.hint)
        return
    found = [read_finding(each) for each in server["findings"]]
    # The skew depends on the replica that answers; that a replica's clock is off is known of all.
    if all(each.check != "database clock" or each.verdict is FindingVerdict.OK for each in found):
        yield skew
    yield fine("token", f"The token is valid; its role is {server['role']}.")
    yield from found


def _skew(date: str | None, now: datetime) -> Finding:
    check = "clock skew"
    if date is None:
        return doubtful(check, "The server does not report its time.", "try: forewarn clock show")
    skew = abs(parsedate_to_datetime(date) - now)
    span = format_duration(skew)
    sentence = f"The clocks of the server and of this machine differ by {span}."
    hint = "try: timedatectl status, here and there"
    if skew > UNUSABLY_SKEWED:
        return wrong(check, sentence, hint)
    if skew > SKEWED:
        return doubtful(check, sentence, hint)
    return fine(check, "The clocks of the server and of this machine agree.")
