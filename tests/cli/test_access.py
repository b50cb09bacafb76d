"""`forewarn token` and `forewarn audit`, as people and programs read them."""

import json
from collections.abc import Callable

import pytest
from tests.cli.test_output import shown, table
from typer.testing import Result

Run = Callable[..., Result]

MAY = "handle events and Maintenances, close and open hosts, restart and redeploy virtual machines"


def create(run: Run, name: str = "deploy", role: str = "operator", *flags: str) -> str:
    made = run("token", "create", name, "--role", role, *flags, "-o", "json")
    assert made.exit_code == 0, made.stderr
    secret: str = json.loads(made.stdout)["secret"]
    return secret


def test_new_token_is_shown_with_its_secret_once(run: Run) -> None:
    made = run(
        "token", "create", "deploy", "--role", "operator", "--scope", "web", "--expires", "30d"
    )

    first, rest = made.stdout.split("\n", 1)
    assert made.exit_code == 0
    assert first.startswith("token:    fw_")
    assert rest == table(f"""
        name:     deploy
        role:     operator
        may:      {MAY}
        scopes:   availability-set/web
        expires:  2026-02-04 08:00:00Z
        """)
    assert made.stderr == "Store the token now; it is not shown again.\n"
    assert first.split()[-1] not in run("token", "list", "-o", "json").stdout


def test_tokens_are_listed_and_revoked(run: Run) -> None:
    create(run)
    create(run, "eyes", "viewer")
    revoked = run("token", "revoke", "eyes")

    assert shown(revoked) == table("""
        NAME  ROLE    SCOPES  HOST  CREATED               EXPIRES  LAST USED  REVOKED
        eyes  viewer                2026-01-05 08:00:00Z                      2026-01-05 08:00:00Z
        """)
    assert shown(run("token", "list")) == table("""
        NAME    ROLE      SCOPES  HOST  CREATED               EXPIRES  LAST USED  REVOKED
        deploy  operator                2026-01-05 08:00:00Z
        eyes    viewer                  2026-01-05 08:00:00Z                      2026-01-05 08:00:00Z
        """)  # noqa: E501


@pytest.mark.parametrize(
    ("arguments", "name", "host", "notes"),
    [
        ("--relay KVM-0", "relay-KVM-0", "kvm-0", ()),
        ("--relay kvm-9 nine", "nine", "kvm-9", ("Note: the fleet has no host 'kvm-9' yet.",)),
    ],
)
def test_token_for_a_relay_is_for_a_host(
    run: Run, arguments: str, name: str, host: str, notes: tuple[str, ...]
) -> None:
    run("vm", "add", "db-0", "--host", "kvm-0")

    made = run("token", "create", *arguments.split())

    assert made.exit_code == 0
    assert made.stdout.partition("\n")[2] == table(f"""
        name:   {name}
        role:   relay
        may:    serve the virtual machines of one host, fetch its work, and nothing else
        host:   {host}
        """)
    said = ("Store the token now; it is not shown again.", *notes)
    assert tuple(made.stderr.splitlines()) == said
    assert json.loads(run("token", "list", "-o", "json").stdout)["tokens"][0]["host"] == host


def test_audit_tells_who_did_what_from_where(run: Run) -> None:
    secret = create(run)
    run("vm", "restart", "solo", FOREWARN_TOKEN=secret)
    run("vm", "remove", "solo", "--yes", FOREWARN_TOKEN=secret)

    assert shown(run("audit", "--who", "deploy")) == table("""
        AT                    WHO     ACTOR     WHERE      ACTION      SUBJECT  OUTCOME  DETAIL
        2026-01-05 08:00:00Z  deploy  operator  127.0.0.1  vm restart  solo     done
        2026-01-05 08:00:00Z  deploy  operator  127.0.0.1  vm remove   solo     refused  Forbidden: This needs the role admin; deploy has the role operator.
        """)  # noqa: E501
    (entry,) = json.loads(shown(run("audit", "--action", "vm remove", "-o", "json")))["audit"]
    assert (entry["who"], entry["outcome"]) == ("deploy", "refused")
    assert len(shown(run("audit", "--since", "2026-01-05T08:00:01Z")).splitlines()) == 1
    assert len(shown(run("audit", "--limit", "1")).splitlines()) == 2


@pytest.mark.parametrize(
    ("arguments", "code", "line", "hint"),
    [
        ("vm remove solo --yes", 4, "This needs the role admin", "token create NAME --role admin"),
        ("token list", 4, "This needs the role admin", "token create NAME --role admin"),
        ("vm show solo", 3, "Unknown virtual machine 'solo'", "forewarn vm list"),
        ("maintenance start --type Freeze --host kvm-0", 4, "also affect db-0", "vm list"),
    ],
)
def test_what_a_token_may_not_is_refused_with_a_hint(
    run: Run, arguments: str, code: int, line: str, hint: str
) -> None:
    assert run("vm", "add", "db-0", "--host", "kvm-0").exit_code == 0
    secret = create(run, "deploy", "operator", "--scope", "web")

    refused = run(*arguments.split(), FOREWARN_TOKEN=secret)

    said, tried = refused.stderr.splitlines()
    assert (refused.exit_code, refused.stdout) == (code, "")
    assert line in said
    assert hint in tried


def test_token_that_was_revoked_is_said_to_be(run: Run) -> None:
    secret = create(run)
    run("token", "revoke", "deploy")

    refused = run("vm", "list", FOREWARN_TOKEN=secret)

    said, hint = refused.stderr.splitlines()
    assert refused.exit_code == 1
    assert said.startswith("forewarn: http://127.0.0.1:")
    assert "The token deploy was revoked on 2026-01-05 08:00:00 GMT;" in said
    assert "forewarn token create" in hint


@pytest.mark.parametrize(
    ("arguments", "code", "line", "hint"),
    [
        ("token revoke nobody", 3, "no active token called 'nobody'", "forewarn token list"),
        ("token create taken --role viewer", 4, "'taken' already", "token revoke taken"),
        (
            "token create admin --role viewer",
            4,
            "is reserved for the server",
            "token create --help",
        ),
        (
            "token create x --role viewer --scope no",
            3,
            "virtual machine 'no'",
            "forewarn fleet show",
        ),
        ("token create x", 2, "Give NAME and --role, or --relay HOST", "token create --help"),
        ("token create --role viewer", 2, "Give NAME and --role", "token create --help"),
        ("token create x --role relay", 2, "or --relay HOST", "token create --help"),
        ("token create --relay h --role viewer", 2, "--role cannot be used", "token create --help"),
        ("token create --relay h --scope web", 2, "--scope cannot be used", "token create --help"),
        ("token create --relay h/1 x", 4, "for a host", ""),
        ("audit --since yesterday", 2, "is not a valid time; use 20m", ""),
    ],
)
def test_token_that_cannot_be_is_refused_with_a_hint(
    run: Run, arguments: str, code: int, line: str, hint: str
) -> None:
    create(run, "taken")

    refused = run(*arguments.split())

    assert refused.exit_code == code
    assert line in refused.stderr
    assert hint in refused.stderr
