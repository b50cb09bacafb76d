"""Follow scheduled events with forewarn's SDK.

    python python_sdk.py [--once] [COMMAND…]

COMMAND is run before an event that names this machine is approved; it finds EVENT_ID and EVENT_TYPE
in its environment. With --once, end when the first such event is over.
"""

import os
import subprocess
import sys

from forewarn.client import ChangeKind, Client, ClientError, Event

OVER = {ChangeKind.COMPLETED, ChangeKind.CANCELED, ChangeKind.GONE}


def main() -> None:
    once = sys.argv[1:2] == ["--once"]
    command = sys.argv[2:] if once else sys.argv[1:]
    # It finds the endpoint, polls, survives trouble and keeps away from proxies by itself.
    with Client() as client:
        me = client.whoami()
        print(f"I am {me.name}", flush=True)
        seen = set()
        for change in client.watch():
            event = change.event
            print(f"{change.kind} {event.event_id} {describe(event)}", flush=True)
            if not event.affects(me):
                continue
            # An event is scheduled again when its time moves.
            if change.kind is ChangeKind.SCHEDULED and event.event_id not in seen:
                seen.add(event.event_id)
                if drain(command, event):
                    approve(client, event)
            if change.kind in OVER and once:
                return


def approve(client: Client, event: Event) -> None:
    """Let the event start before its time. If that fails for long, it starts at its time."""
    try:
        client.approve(event)
    except ClientError as error:
        print(f"not approved: {error}", file=sys.stderr)
    else:
        print(f"approved {event.event_id}", flush=True)


def describe(event: Event) -> str:
    when = f", not before {event.not_before:%Y-%m-%d %H:%M:%S} UTC" if event.not_before else ""
    return f"{event.event_type} of {', '.join(event.resources)}{when}"


def drain(command: list[str], event: Event) -> bool:
    """Stop taking work. If that fails, nothing is approved, and the event starts at its time."""
    if not command:
        return True
    about = {"EVENT_ID": event.event_id, "EVENT_TYPE": event.event_type}
    code = subprocess.run(command, env=os.environ | about, check=False).returncode
    if code:
        print(f"not approved: {command[0]} ended with {code}", file=sys.stderr)
    return code == 0


if __name__ == "__main__":
    main()
