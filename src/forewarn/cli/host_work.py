"""`forewarn host work`: this host fetches its own work from a server, and does it."""

import sys
from pathlib import Path
from typing import Annotated

from forewarn.cli.errors import CommandError, ExitCode, reported_errors
from forewarn.cli.options import option
from forewarn.environment import environment_with


def work(*, config: Annotated[Path, option("FILE", "Settings file.")]) -> None:
    """Fetch this host's work from a server, and do it.

    It runs only the programs named in FILE, when the server asks for them, and reports
    their results. It opens no port.

    Example: forewarn host work --config /etc/forewarn/host-work.toml
    """
    with reported_errors("host work"):
        if sys.platform != "linux":
            raise CommandError("forewarn host work needs Linux.", code=ExitCode.USAGE)
        from forewarn.files.tables import TablesError  # noqa: PLC0415 - slow to load
        from forewarn.host_worker.process import do_host_work  # noqa: PLC0415
        from forewarn.host_worker.settings import read_host_work_settings  # noqa: PLC0415
        from forewarn.telemetry.logs import configure_logging  # noqa: PLC0415

        try:
            settings = read_host_work_settings(config, environment_with({}).get("PATH", ""))
        except TablesError as error:
            # Its own exit code: systemd need not try again.
            first, *more = str(error).splitlines()
            raise CommandError(first, code=ExitCode.USAGE, more=more) from None
        configure_logging(settings.log_format, settings.log_level)
        do_host_work(settings)
