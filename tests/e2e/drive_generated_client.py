"""Does an operator's work with a client that was generated from the OpenAPI document.

Its arguments are the URL of the server and the token; it writes what it was answered.
"""

import importlib
import json
import sys
from typing import Any


def generated(name: str) -> Any:
    """Return a module of the client, which is made while tests run."""
    return importlib.import_module(f"generated.{name}")


def call(noun: str, operation: str, *arguments: str, **more: Any) -> Any:
    answer = generated(f"api.{noun}.{operation}").sync_detailed(*arguments, client=CLIENT, **more)
    return {"status": int(answer.status_code), "content": answer.parsed.to_dict()}


def apply_fleet(*vms: str) -> Any:
    request = generated("models").ApplyFleetFleetRequest.from_dict(
        {"fleet": {"virtual_machine": [{"name": vm} for vm in vms]}}
    )
    return call("fleet", "apply_fleet", body=request)


def announce(vm: str) -> Any:
    models = generated("models")
    order = models.EventOrderRequest(event_type=models.EventType.REBOOT, resources=[vm])
    return call("events", "create_event", body=order)


def main() -> None:
    applied = apply_fleet("made-0", "made-1")
    announced = announce("made-0")
    event_id = announced["content"]["events"][0]["event_id"]
    reason = generated("models").CancelRequest(reason="not tonight")
    done = {
        "applied": applied,
        "announced": announced,
        "canceled": call("events", "cancel_event", event_id, body=reason),
        "again": call("events", "cancel_event", event_id),
        "shown": call("events", "show_event", event_id),
    }
    sys.stdout.write(json.dumps(done))


URL, TOKEN = sys.argv[1:]
CLIENT = generated("client").AuthenticatedClient(base_url=URL, token=TOKEN)
main()
