"""`forewarn open`: the web console, in a browser that is signed in."""

import sys
from typing import Annotated

from forewarn.cli.catalogue import alone
from forewarn.cli.options import switch
from forewarn.cli.output import Output, Row, print_line, wall_time_of
from forewarn.cli.session import Session, command
from forewarn.environment import has_display

app = alone()


@command(app, "open")
def open_console(
    session: Session,
    *,
    only_print: Annotated[
        bool, switch("Print the link without opening a browser.", "--print")
    ] = False,
) -> None:
    """Open the web console in a browser, signed in.

    The link signs in one browser, once, within 10 minutes, with the token of this command.
    Without a desktop, the command only prints the link.

    Example: forewarn open
    """
    link = session.post("sign-in-links", takes_key=False)
    url = f"{session.server}/login#{link['code']}"
    session.show({"url": url, "expires_at": link["expires_at"]}, _print_link)
    # A program that asked for JSON uses the link itself, and it works only once.
    is_for_people = session.output is Output.TABLE and sys.stdout.isatty()
    if is_for_people and has_display() and not only_print:
        import webbrowser  # noqa: PLC0415 - help and completion are to be quick

        webbrowser.open(url)


def _print_link(link: Row) -> None:
    print_line(link["url"])
    print_line(f"The link works once, until {wall_time_of(link['expires_at'])}.", err=True)
