"""The command `forewarn-agent`.

What only one verb needs is imported by that verb alone: `once` may be run every few seconds.
"""

import argparse
import gc
import sys
from collections.abc import Mapping
from functools import partial
from pathlib import Path
from typing import Final, NoReturn

_DESCRIPTION: Final = """\
Runs hooks before and after maintenance of this virtual machine, and approves the event when the
hooks are done. Works with forewarn and with Azure Scheduled Events."""

_EXAMPLES: Final = """\
examples:
  forewarn-agent check                         check the configuration and the server
  forewarn-agent run --dry-run                 log actions without doing them
  forewarn-agent run                           run as a service
  forewarn-agent once --config ./agent.toml    do what is due now and exit (for cron)

exit status:
  0   done                2   invalid command or configuration
  1   something failed    6   no usable answer from the metadata server
  75  a hook returned "not yet"; run `once` again
"""


def main() -> NoReturn:
    """Run the command and end the process."""
    gc.disable()  # while modules are imported nothing becomes garbage
    options = _make_parser().parse_args()
    try:
        status = _perform(options.verb, options.config, is_dry=options.dry_run)
    except KeyboardInterrupt:
        status = 130
    gc.freeze()  # nor is anything looked at that ends with the process
    sys.exit(status)


def _make_parser() -> argparse.ArgumentParser:
    parser = argparse.ArgumentParser(
        prog="forewarn-agent",
        description=_DESCRIPTION,
        epilog=_EXAMPLES,
        formatter_class=_FORMATTER,
    )
    parser.set_defaults(dry_run=False)
    verbs = parser.add_subparsers(dest="verb", metavar="run | once | check", required=True)
    for verb, (summary, can_be_dry) in _SUMMARIES.items():
        added = verbs.add_parser(
            verb, help=summary, description=summary, formatter_class=_FORMATTER
        )
        added.add_argument(
            "--config",
            type=Path,
            metavar="FILE",
            help="configuration file; default: agent.toml in /etc/forewarn"
            r" or %%ProgramData%%\forewarn, if it exists",
        )
        if can_be_dry:
            added.add_argument(
                "--dry-run", action="store_true", help="run nothing, approve nothing, store nothing"
            )
    return parser


# Without a width it is asked of the terminal, with whatever shutil imports, for every argument.
_FORMATTER: Final = partial(argparse.RawDescriptionHelpFormatter, width=100)

_SUMMARIES: Final[Mapping[str, tuple[str, bool]]] = {
    "run": ("Follow the events of this machine until stopped.", True),
    "once": ("Do what is due now, wait until it is done, and exit.", True),
    "check": ("Check the configuration, find the server, and show its events.", False),
}
"""What each verb does, and whether it has --dry-run."""


def _perform(verb: str, file: Path | None, *, is_dry: bool) -> int:
    if verb == "run":
        from forewarn.agent.service import run

        return run(file, is_dry=is_dry)
    if verb == "once":
        from forewarn.agent.once import once

        return once(file, is_dry=is_dry)
    from forewarn.agent.check import check

    return check(file)
