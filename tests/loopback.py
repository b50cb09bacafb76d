"""An application on a real loopback socket, for what speaks HTTP only to an address."""

import socket
import threading
import time
from collections.abc import Iterator
from contextlib import contextmanager

import uvicorn
from fastapi import FastAPI

TIMEOUT = 45


@contextmanager
def on_loopback(app: FastAPI) -> Iterator[str]:
    """Serve *app*; its address."""
    control = uvicorn.Server(uvicorn.Config(app, lifespan="off", log_config=None))
    with socket.create_server(("127.0.0.1", 0)) as listener:
        thread = threading.Thread(target=control.run, args=([listener],))
        thread.start()
        deadline = time.monotonic() + TIMEOUT
        while not control.started:
            assert time.monotonic() < deadline, "the control API did not start"
            time.sleep(0.005)
        try:
            yield f"127.0.0.1:{listener.getsockname()[1]}"
        finally:
            control.should_exit = True
            thread.join(TIMEOUT)
        assert not thread.is_alive(), "the control API did not stop"
