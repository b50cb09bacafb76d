"""`forewarn relay`: answers the virtual machines of one host. Its process is a lean one."""

import os
import sys
from pathlib import Path
from typing import Annotated

from forewarn.cli.catalogue import alone
from forewarn.cli.errors import CommandError, ExitCode, reported_errors
from forewarn.cli.options import accepting, keyword, option
from forewarn.cli.serve import flags_of, given
from forewarn.environment import environment_with, notify_socket
from forewarn.front.settings import RELAY_SETTINGS, load_relay_settings


def relay(**flags: object) -> None:
    """Serve polls on one host for a remote server.

    While the server is unreachable, the relay serves its copy of the guests' documents,
    even after a restart, and answers approvals with 503. Each flag is also an environment
    variable (--token-file: FOREWARN_TOKEN_FILE) and a key in the --config file
    (token_file).

    Example: forewarn relay --server https://10.0.0.5:8170 --token-file token
    """
    with reported_errors("relay"):
        if sys.platform != "linux":
            raise CommandError("A relay needs Linux.", code=ExitCode.USAGE)
        config = flags.pop("config")
        settings = load_relay_settings(given(flags), config if isinstance(config, Path) else None)
        # What commands load stays behind. With -P the working directory is no place for modules.
        words = (sys.executable, "-P", "-m", "forewarn.front.relay", settings.encode())
        socket = notify_socket()
        surroundings = environment_with({} if socket is None else {"NOTIFY_SOCKET": socket})
        os.execve(sys.executable, words, surroundings)  # noqa: S606 - no shell is wanted


_CONFIG = keyword("config", Annotated[Path | None, option("FILE", "Settings file of the relay.")])
app = alone()
app.command("relay")(accepting(*flags_of(RELAY_SETTINGS), _CONFIG)(relay))
