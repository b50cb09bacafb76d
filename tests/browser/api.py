"""The control API, for what a test does beside the browser."""

import json
from typing import Any
from urllib.request import Request, urlopen

from forewarn.testing.emulator import Emulator


def call(emulator: Emulator, method: str, path: str, body: object = None) -> Any:
    """Return what the control API answers to its admin."""
    request = Request(
        f"{emulator.control_url}/api/v1{path}",
        method=method,
        data=None if body is None else json.dumps(body).encode(),
        headers={
            "Authorization": f"Bearer {emulator.token}",
            "Content-Type": "application/json",
        },
    )
    with urlopen(request) as answer:
        return json.load(answer)


def make_token(emulator: Emulator, name: str, role: str, *scopes: str) -> str:
    """Return a token of that *role*, limited to *scopes* if there are any."""
    order = {"name": name, "role": role, "scopes": list(scopes)}
    return str(call(emulator, "POST", "/tokens", order)["secret"])


def poll(emulator: Emulator, vm: str) -> None:
    """Read the document as *vm* does."""
    url = f"http://{emulator.address}/vm/{vm}/metadata/scheduledevents?api-version=2020-07-01"
    with urlopen(Request(url, headers={"Metadata": "true"})) as answer:
        answer.read()
