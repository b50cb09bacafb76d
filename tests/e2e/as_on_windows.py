"""Run the agent with its arguments, without what Windows lacks."""

import os
import signal
import socket
import sys

POSIX_ONLY = {
    *("crypt", "curses", "fcntl", "grp", "nis", "pty", "pwd", "readline"),
    *("resource", "spwd", "syslog", "termios", "tty"),
}
MISSING = {
    os: ("fork", "getuid", "killpg", "setsid"),
    signal: ("SIGHUP", "SIGKILL", "SIGUSR1"),
    socket: ("AF_UNIX",),
}


class Withholder:
    """Finds none of the modules that are POSIX-only."""

    @staticmethod
    def find_spec(name: str, *_: object) -> None:
        if name in POSIX_ONLY:
            raise ModuleNotFoundError(f"No module named {name!r}", name=name)


if __name__ == "__main__":
    for name in POSIX_ONLY:
        sys.modules.pop(name, None)
    sys.meta_path.insert(0, Withholder)
    for module, names in MISSING.items():
        for name in names:
            delattr(module, name)

    from forewarn.agent.command import main

    main()
