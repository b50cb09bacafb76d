"""A program in the place of ssh: it writes down what it is to run, and answers for the host."""

from pathlib import Path

SSH = """#!/bin/sh
# The last two words are the destination and the command.
folder=$(dirname "$0")
while [ $# -gt 2 ]; do shift; done
input=$(cat)
echo "$1 $2${input:+ <<< $input}" >> "$folder/ssh.calls"
case $2 in
  *boot_id) [ ! -e "$folder/ssh.away" ] && cat "$folder/ssh.boot" ;;
  "systemctl reboot") echo another > "$folder/ssh.boot"; exit 255 ;;
  "sh -s") [ ! -e "$folder/ssh.broken" ] || { echo "no space left"; exit 100; } ;;
  *) [ ! -e "$folder/ssh.command" ] || . "$folder/ssh.command" ;;
esac
"""


def put_ssh(folder: Path) -> None:
    """Put it into *folder*, which has to be in PATH."""
    (folder / "ssh").write_text(SSH, encoding="ascii")
    (folder / "ssh").chmod(0o755)
    (folder / "ssh.boot").write_text("first\n", encoding="ascii")


def calls(folder: Path) -> list[str]:
    """Return what was run on hosts, without looks at the id of the boot."""
    try:
        lines = (folder / "ssh.calls").read_text(encoding="ascii").splitlines()
    except FileNotFoundError:
        return []
    return [line for line in lines if not line.endswith("boot_id")]
