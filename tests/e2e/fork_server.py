"""Has imported all that a server needs, and forks a process for each script it is told to run.

To import it takes a process of its own a second; the process that is forked is as real, and has
its environment, its files and its end to itself. Each has a keeper that says how it ended.
"""

import contextlib
import gc
import json
import os
import runpy
import socket
import sys
import time
from typing import Any

PRELOADED = ("forewarn.bootstrap.server", "forewarn.cli.app", "forewarn.cli.serve", "uvloop")
_LARGEST = 200_000
_FILES = 4


def take_orders(orders: socket.socket) -> list[str]:
    """Fork a process for each of *orders*; return only in those, what they are to run."""
    while True:
        text, received, _, _ = socket.recv_fds(orders, _LARGEST, _FILES)
        if not text:
            _reap_keepers(0)
            sys.exit()
        if os.fork():
            for file in received:
                os.close(file)
            _reap_keepers(os.WNOHANG)
        else:
            orders.close()
            report, *files = received
            _keep(socket.socket(fileno=report), files)
            return _become(json.loads(text), files)


def _keep(report: socket.socket, files: list[int]) -> None:
    """Fork once more, and return in the process that is new; the other says how that ends."""
    pid = os.fork()
    if not pid:
        report.close()
        return
    for file in files:
        os.close(file)
    # Nobody may be there any more who wants to know.
    with contextlib.suppress(OSError):
        report.send(b"%d" % pid)
    _, status = os.waitpid(pid, 0)
    with contextlib.suppress(OSError):
        report.send(b"%d" % os.waitstatus_to_exitcode(status))
    os._exit(0)


def _become(order: dict[str, Any], files: list[int]) -> list[str]:
    for place, file in enumerate(files):
        os.dup2(file, place)
        os.close(file)
    os.chdir(order["folder"])
    os.environ.clear()  # noqa: TID251 - it is what the process is given
    os.environ.update(order["environment"])  # noqa: TID251
    time.tzset()
    return list(order["command"])


def _reap_keepers(options: int) -> None:
    with contextlib.suppress(ChildProcessError):
        while os.waitpid(-1, options)[0]:
            pass


if __name__ == "__main__":
    for name in PRELOADED:
        __import__(name)
    gc.freeze()
    sys.argv = take_orders(socket.socket(fileno=int(sys.argv[1])))
    runpy.run_path(sys.argv[0], run_name="__main__")
