"""`forewarn doctor`: what an operator stumbles on, and what to do about it."""

import sys
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import replace
from pathlib import Path
from typing import Annotated, Final

from forewarn.cli.catalogue import alone
from forewarn.cli.examination.findings import is_open_to_others, print_findings
from forewarn.cli.options import ConfigFile, switch
from forewarn.cli.session import Session, command
from forewarn.clocks import SystemClock
from forewarn.domain.finding import Finding, doubtful, fine, wrong
from forewarn.environment import CONFIG_FILE, SettingsError
from forewarn.settings_table import SETTINGS, SettingOrigin

app = alone()

PATIENCE: Final = 5.0
"""How many seconds a server has: one that takes longer is a finding."""


@command(app, "doctor")
def doctor(
    session: Session,
    *,
    config: ConfigFile = None,
    remote: Annotated[bool, switch("Check only the server, not this machine.", "--remote")] = False,
) -> None:
    """Find problems with a server and how to fix them.

    It checks the settings, files, disk, database and addresses of this machine, the host
    setup (forewarn host setup), and the running server. It changes nothing, and fails if
    any check fails.

    Example: forewarn doctor
    """
    from forewarn.cli.examination.server import examine_server  # noqa: PLC0415 - slow to load

    here = [] if remote else [*_of_machine(config), *_of_host()]
    there = [*examine_server(replace(session, patience=PATIENCE), SystemClock().now())]
    print_findings([*unless_reported(here, there), *there], session.output)


def unless_reported(here: Iterable[Finding], there: Iterable[Finding]) -> Iterator[Finding]:
    """Yield what was found *here*, except for a directory that a server reports, too."""
    reported = " ".join(each.sentence for each in there)
    for each in here:
        directory, _, problem = each.sentence.partition(" cannot be written")
        if not problem or f"{directory}/tasks cannot be written" not in reported:
            yield each


def _of_machine(config: Path | None) -> Iterator[Finding]:
    from forewarn.cli.examination.machine import examine_machine  # noqa: PLC0415 - slow to load
    from forewarn.settings import find_origins, load_settings  # noqa: PLC0415

    try:
        settings = load_settings({}, config)
    except SettingsError as error:
        yield wrong("configuration", str(error), "try: forewarn serve --help")
        return
    origins = find_origins({}, config)
    in_file = (name for name, origin in origins.items() if origin is SettingOrigin.FILE)
    secrets = [name for name in in_file if SETTINGS[name].hides(getattr(settings, name))]
    yield _configuration(config or CONFIG_FILE, secrets)
    yield from examine_machine(settings)


def _of_host() -> Iterable[Finding]:
    if sys.platform != "linux":
        return ()
    from forewarn.cli.examination.host import examine_host  # noqa: PLC0415 - needs Linux
    from forewarn.host_setup.this_host import ThisHost  # noqa: PLC0415

    return examine_host(ThisHost())


def _configuration(file: Path, secrets: Sequence[str]) -> Finding:
    check = "configuration"
    if not file.exists():
        return fine(check, f"{file} does not exist; defaults apply.")
    if secrets and is_open_to_others(file):
        sentence = (
            f"Other users on this machine can read {file}, which contains secrets: "
            f"{', '.join(secrets)}."
        )
        return doubtful(check, sentence, f"try: chmod 600 {file}")
    return fine(check, f"{file} is readable.")
