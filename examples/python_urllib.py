"""Follow scheduled events with nothing but Python's standard library.

    python python_urllib.py [--once] [COMMAND…]

COMMAND is run before an event that names this machine is approved; it finds EVENT_ID and EVENT_TYPE
in its environment. With --once, end when the first such event is gone.
"""

import http.client
import json
import os
import subprocess
import sys
import time
import urllib.error
import urllib.request
from typing import Any

METADATA = os.environ.get("FOREWARN_METADATA") or "http://169.254.169.254"
EVENTS = f"{METADATA}/metadata/scheduledevents?api-version=2020-07-01"
NAME = f"{METADATA}/metadata/instance/compute/name?api-version=2021-02-01&format=text"
# The server knows us by our connection: a proxy cannot ask in our place.
OPENER = urllib.request.build_opener(urllib.request.ProxyHandler({}))
# All of it passes: refused, reset, timed out, 404, 410, 429, 5xx, an empty body (which is no JSON),
# and JSON that is no document.
TROUBLE = (OSError, http.client.HTTPException, ValueError, LookupError, TypeError)

Event = dict[str, Any]


def main() -> None:
    once = sys.argv[1:2] == ["--once"]
    command = sys.argv[2:] if once else sys.argv[1:]
    me = find_out_who_i_am()
    say(f"I am {me}")
    etag, known = "", dict[str, Event]()
    to_approve = set[str]()
    while True:
        events, etag = poll(etag)
        if events is not None:
            for event_id, event in events.items():
                if event["EventStatus"] == known.get(event_id, {}).get("EventStatus"):
                    continue
                say(f"{event['EventStatus'].lower()} {describe(event)}")
                is_ahead = event["EventStatus"] == "Scheduled" and me in event["Resources"]
                if is_ahead and drain(command, event):
                    to_approve.add(event_id)
            # Completed or canceled: the event leaves the document, and nobody says which.
            gone = [event for event_id, event in known.items() if event_id not in events]
            say(*(f"gone {describe(event)}" for event in gone))
            if once and any(me in event["Resources"] for event in gone):
                return
            known = events
        to_approve &= known.keys()
        if to_approve and approve(to_approve):
            to_approve.clear()
        time.sleep(1)


def find_out_who_i_am() -> str:
    """Return the name that Resources has for this machine; it need not be the host name."""
    while True:
        try:
            if name := call(NAME)[0].decode():
                return name
        except TROUBLE as error:
            complain(error)
        time.sleep(1)


def poll(etag: str) -> tuple[dict[str, Event] | None, str]:
    """Return the events there are and their ETag; None when there is nothing new to know."""
    try:
        body, new_etag = call(EVENTS, headers={"If-None-Match": etag} if etag else {})
        return {event["EventId"]: event for event in json.loads(body)["Events"]}, new_etag
    except urllib.error.HTTPError as error:
        if error.code == http.HTTPStatus.NOT_MODIFIED:
            return None, etag
        complain(error)
    except TROUBLE as error:
        complain(error)
    return None, ""  # a server that comes back may count its documents anew


def approve(event_ids: set[str]) -> bool:
    """Let the events start before their time, for everybody in their Resources."""
    requests = [{"EventId": event_id} for event_id in event_ids]
    try:
        call(EVENTS, json.dumps({"StartRequests": requests}).encode())
    except TROUBLE as error:
        complain(error)
        return False
    say(f"approved {' '.join(event_ids)}")
    return True


def drain(command: list[str], event: Event) -> bool:
    """Stop taking work. If that fails, nothing is approved, and the event starts at its time."""
    if not command:
        return True
    about = {"EVENT_ID": event["EventId"], "EVENT_TYPE": event["EventType"]}
    code = subprocess.run(command, env=os.environ | about, check=False).returncode
    if code:
        complain(f"not approved: {command[0]} ended with {code}")
    return code == 0


def call(
    url: str, data: bytes | None = None, headers: dict[str, str] | None = None
) -> tuple[bytes, str]:
    request = urllib.request.Request(url, data, {"Metadata": "true", **(headers or {})})
    with OPENER.open(request, timeout=10) as answer:
        return answer.read(), answer.headers["ETag"] or ""


def describe(event: Event) -> str:
    when = f", not before {event['NotBefore']}" if event.get("NotBefore") else ""
    return f"{event['EventId']} {event['EventType']} of {', '.join(event['Resources'])}{when}"


def say(*lines: str) -> None:
    for line in lines:
        print(line, flush=True)


def complain(trouble: object) -> None:
    print(trouble or repr(trouble), file=sys.stderr, flush=True)


if __name__ == "__main__":
    main()
