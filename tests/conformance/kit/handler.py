"""A small correct handler, and one thing that it does wrong if it is told to.

    python handler.py [MISTAKE]

It needs no package, runs the hooks of the conformance kit, and keeps in a file what is to be put
back.
"""

import contextlib
import http.client
import json
import os
import signal
import subprocess
import sys
import time
import urllib.request
from pathlib import Path
from typing import Any

MISTAKE = (sys.argv[1:] or [""])[0]
METADATA = os.environ["FOREWARN_METADATA_URL"]
VERSION = "1999-01-01" if MISTAKE == "invents-version" else "2020-07-01"
EVENTS = f"{METADATA}/metadata/scheduledevents?api-version={VERSION}"
ME = "web-0"
STATE = Path(os.environ["FOREWARN_CONFORMANCE_FOLDER"]) / "state.json"
TROUBLE = (OSError, http.client.HTTPException, ValueError, LookupError, TypeError)
HEADERS = {} if MISTAKE == "omits-header" else {"Metadata": "true"}
PAUSE = 0.1 if MISTAKE == "polls-too-often" else 1.0


def main() -> None:
    signal.signal(signal.SIGTERM, lambda *_: sys.exit(0))
    done: dict[str, str] = json.loads(STATE.read_text("utf-8")) if STATE.exists() else {}
    while True:
        try:
            shown = json.loads(call())["Events"]
            read = shown[:1] if MISTAKE == "reads-one" else shown
            events = {event["EventId"]: event for event in read}
        except TROUBLE:
            survive_trouble()
            continue
        follow(events, done)
        time.sleep(3600 if MISTAKE == "stops-polling" else PAUSE)


def survive_trouble() -> None:
    if MISTAKE == "ends-in-trouble":
        sys.exit(1)
    time.sleep(0.02 if MISTAKE == "does-not-back-off" else 1)


def follow(events: dict[str, dict[str, Any]], done: dict[str, str]) -> None:
    for event_id, event in events.items():
        if ME not in event["Resources"] and MISTAKE != "takes-all":
            continue
        if event["EventStatus"] == "Scheduled":
            handle(event_id, done)
        elif MISTAKE == "approves-again":
            approve(event_id)
        elif MISTAKE == "prepares-again":
            run("PREPARE")
        elif event["EventStatus"] == "Started" and MISTAKE not in {"ignores-started", "forgets"}:
            done.setdefault(event_id, "started")
            keep(done)
    gone = [event_id for event_id in done if event_id not in events]
    if gone and len(gone) == len(done) and MISTAKE not in {"never-recovers", "recovers-early"}:
        run("RECOVER")
    if MISTAKE == "recovers-again":
        return
    for event_id in gone:
        del done[event_id]
        keep(done)


def handle(event_id: str, done: dict[str, str]) -> None:
    if event_id in done:
        if done[event_id] == "ready" and approve(event_id):
            done[event_id] = "approved"
            keep(done)
        return
    done[event_id] = "begun"
    keep(done)
    if MISTAKE == "approves-first":
        approve(event_id)
    is_ready = MISTAKE == "never-prepares" or run("PREPARE")
    done[event_id] = "ready" if is_ready or MISTAKE == "approves-anyway" else "failed"
    if MISTAKE == "recovers-early":
        run("RECOVER")
    if done[event_id] == "ready" and approve(event_id):
        done[event_id] = "approved"
    keep(done)


def keep(done: dict[str, str]) -> None:
    if MISTAKE != "forgets":
        STATE.write_text(json.dumps(done), "utf-8")


def approve(event_id: str) -> bool:
    if MISTAKE == "never-approves":  # which is none: the event starts at its time
        return True
    body = json.dumps({"StartRequests": [{"EventId": event_id}]})
    for _ in range(40 if MISTAKE == "storms" else 0):
        call(body.encode("ascii"))
    with contextlib.suppress(*TROUBLE):
        call(body.encode("ascii"))
        return True
    return MISTAKE == "gives-up"


def run(hook: str) -> bool:
    return subprocess.run([os.environ[f"FOREWARN_CONFORMANCE_{hook}"]], check=False).returncode == 0


def call(body: bytes | None = None) -> bytes:
    request = urllib.request.Request(EVENTS, body, HEADERS)
    with urllib.request.urlopen(request, timeout=10) as answer:
        content: bytes = answer.read()
        return content


main()
