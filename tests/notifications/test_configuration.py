"""The file of notifications, and what is wrong with it."""

import pytest
from tests.notifications.conftest import NOW, Write
from tests.receiver import Receiver
from tests.web_site import OUTBOUND

from forewarn.domain.notification import Notification, Phase, Target
from forewarn.files.tables import TablesError
from forewarn.notifications.configuration import read_notifications
from forewarn.protocol.vocabulary import EventType

HOOK = '[[target]]\nname = "ops"\nkind = "webhook"\nurl = "https://hush.example/T0KEN"\n'
_DAY = "{{ data.started_at[:10] }}"


def test_without_a_file_nobody_is_told() -> None:
    nobody = read_notifications(None, OUTBOUND)

    assert (nobody.targets, dict(nobody.notifiers)) == ((), {})


def test_file_says_whom_to_tell_what_and_how_often(write: Write) -> None:
    text = f"""first_retry = 0.001
longest_retry = 2
attempts = 7

{HOOK}scopes = ["web"]
event_types = ["Reboot"]
phases = ["failed", "overdue"]

[[target]]
name = "mail"
kind = "apprise"
url = "json://localhost"
"""

    told = read_notifications(write(text), OUTBOUND)

    assert told.targets == (
        Target(
            name="ops",
            scopes=("web",),
            event_types=(EventType.REBOOT,),
            phases=(Phase.FAILED, Phase.OVERDUE),
        ),
        Target(name="mail"),
    )
    assert list(told.notifiers) == ["ops", "mail"]
    assert told.retrying.first.total_seconds() == 0.001
    assert (told.retrying.longest.total_seconds(), told.retrying.attempts) == (2, 7)


def test_secret_may_be_in_a_file_beside_it(
    write: Write, receiver: Receiver, message: Notification
) -> None:
    path = write(
        f'source = "urn:dc1"\n[[target]]\nname = "ops"\nkind = "webhook"\nurl = "{receiver.url}"\n'
        'secret_file = "key"\nheaders = { content-type = "text/plain" }\n'
    )
    path.with_name("key").write_text("hush\n", encoding="utf-8")

    read_notifications(path, OUTBOUND).notifiers["ops"].deliver(message, now=NOW)

    (request,) = receiver.received
    assert "forewarn-signature" in request.headers
    assert request.headers["content-type"] == "text/plain"
    assert request.json()["source"] == "urn:dc1"


@pytest.mark.parametrize(
    ("text", "line", "problem"),
    [
        ("a = = 1\n", 1, "Not valid TOML: "),
        ("\nnope = 1\n", 2, "nope: unknown key; known keys: source, first_retry, "),
        ("first_retry = -1\n", 1, "first_retry: it is too low; use a value above 0."),
        ("attempts = 0\n", 1, "attempts: "),
        ('[target]\nname = "x"\n', 1, "target: it is not a list; in TOML, write [[target]]."),
        (HOOK.replace("https", "ftp"), 4, "url of target 1: the URL must begin"),
        (
            HOOK.replace("hush.", "u:T0KEN/P@hush."),
            4,
            "url of target 1: the host or port is invalid",
        ),
        (HOOK.replace("hush.", ".."), 4, "url of target 1: the host or port is invalid"),
        (HOOK.replace("hush.example", ":80"), 4, "url of target 1: the host or port is invalid"),
        (
            HOOK.replace(".example", ".example:99999"),
            4,
            "url of target 1: the host or port is invalid",
        ),
        (
            HOOK.replace('"ops"', '"o p s"'),
            2,
            "name of target 1: 'o p s' is not a valid name for a",
        ),
        (
            HOOK.replace("webhook", "pigeon"),
            3,
            "kind of target 1: it must be one of 'webhook'",
        ),
        (HOOK.replace('kind = "webhook"\n', ""), 1, "kind of target 1: write webhook or apprise."),
        ('source = "a b"\n', 1, "source: it does not match the pattern ^\\S+$."),
        ("attempts = 0\n", 1, "attempts: it is too low; use a value above 0."),
        (HOOK.replace("url", "uri"), 1, "url of target 1: it is required."),
        (HOOK + HOOK, 6, "name of target 2: 'ops' is already defined."),
        (HOOK + 'secret = "a"\nsecret_file = "b"\n', 1, "target 1: secret and secret_file"),
        (HOOK + 'secret_file = "b"\n', 5, "secret_file of target 1: the secret cannot be read"),
        (HOOK + 'secret_file = "empty"\n', 5, "secret_file of target 1: the secret file is empty"),
        (HOOK + 'template = "{{ x"\n', 5, "template of target 1: invalid template: "),
        (HOOK + 'template = "{{ nobody }}"\n', 5, "template of target 1: invalid template: "),
        (HOOK + 'template = "{{ data.nothing }}"\n', 5, "template of target 1: invalid template: "),
        (HOOK + 'template = "{{ 1 / 0 }}"\n', 5, "template of target 1: invalid template: "),
        (HOOK + f'template = "{_DAY}"\n', 5, "in a message of phase scheduled."),
        (HOOK + 'phases = ["done"]\n', 5, "phases of target 1: it must be one of 'scheduled'"),
        (HOOK + "timeout = 0\n", 5, "timeout of target 1: it is too low; use a value above 0."),
        (
            HOOK + '[target.headers]\n"X Y" = "a"\n',
            5,
            "headers of target 1: 'X Y' is not a valid header",
        ),
        (HOOK + 'headers = { X = "a\\nb" }\n', 5, "headers of target 1: 'X' is not a valid header"),
        (
            HOOK + 'headers = { X = "T0KEN " }\n',
            5,
            "headers of target 1: 'X' is not a valid header",
        ),
        (
            HOOK + 'headers = { X = " T0KEN" }\n',
            5,
            "headers of target 1: 'X' is not a valid header",
        ),
        (
            HOOK.replace("webhook", "apprise").replace("https", "pigeon"),
            4,
            "url of target 1: apprise does not support this URL.",
        ),
    ],
)
def test_what_is_wrong_is_refused_with_its_line(
    write: Write, text: str, line: int, problem: str
) -> None:
    path = write(text)
    path.with_name("empty").write_text("\n", encoding="utf-8")

    with pytest.raises(TablesError) as refused:
        read_notifications(path, OUTBOUND)

    said = str(refused.value)
    assert said.startswith(f"{path}:{line}")
    assert problem in said
    assert "T0KEN" not in said


def test_template_is_tried_only_on_what_the_target_wants(write: Write) -> None:
    path = write(f'{HOOK}template = "{_DAY}"\nphases = ["started", "failed"]\n')

    told = read_notifications(path, OUTBOUND)

    assert list(told.notifiers) == ["ops"]


def test_file_that_is_not_there_is_refused(write: Write) -> None:
    path = write("").with_name("nowhere.toml")

    with pytest.raises(TablesError, match=r"nowhere\.toml cannot be read"):
        read_notifications(path, OUTBOUND)
