"""How the programs for OpenStack get a token, and where they send it."""

from dataclasses import replace
from pathlib import Path

import pytest
from tests.contrib.conftest import CONTRIB, FAST, Program
from tests.contrib.openstack.api import PASSWORD, PROJECT, SECRET, Cloud
from tests.contrib.openstack.conftest import ProgramMaker, write_credentials
from tests.contrib.stand_in import Reply
from tests.e2e.test_tls import Pair

EVENT = {"EVENT_TYPE": "Preempt", "EVENT_VM": "web-0"}


@pytest.fixture
def impact(program: ProgramMaker) -> Program:
    return program("nova_impact.py")


def bare() -> Program:
    return Program(path=CONTRIB / "openstack" / "nova_impact.py", arguments=FAST)


def test_password_logs_in_to_a_project(cloud: Cloud, impact: Program) -> None:
    assert impact.run(**EVENT).last_line == "web-0 is stopped"

    asked = cloud.api.asked[0].fields["auth"]
    assert asked["scope"] == {"project": {"name": "admin", "domain": {"id": "default"}}}
    assert asked["identity"]["password"]["user"]["domain"] == {"name": "Default"}


def test_application_credential_logs_in_without_a_scope(cloud: Cloud, tmp_path: Path) -> None:
    path = write_credentials(
        tmp_path,
        "",
        f"OS_AUTH_URL={cloud.api.url}/identity/v3/",
        "OS_APPLICATION_CREDENTIAL_ID=423f19a4ac1e4f48bbb4180756e6eb6c",
        f"OS_APPLICATION_CREDENTIAL_SECRET={SECRET}",
    )

    assert bare().run("--credentials", str(path), **EVENT).last_line == "web-0 is stopped"
    assert "scope" not in cloud.api.asked[0].fields["auth"]


def test_environment_is_used_without_a_file(cloud: Cloud) -> None:
    known = {
        "OS_AUTH_URL": f"{cloud.api.url}/identity",
        "OS_USERNAME": "admin",
        "OS_PASSWORD": PASSWORD,
        "OS_PROJECT_ID": PROJECT,
        "OS_INTERFACE": "publicURL",
    }

    assert bare().run(**EVENT, **known).last_line == "web-0 is stopped"
    missing = bare().run(**EVENT, **{**known, "OS_PASSWORD": ""})
    assert missing.last_line == (
        "set OS_PASSWORD, in the environment or in the file of --credentials"
    )


def test_wrong_password_is_the_reason(cloud: Cloud, impact: Program, tmp_path: Path) -> None:
    path = tmp_path / "openrc"
    path.write_text(path.read_text("ascii").replace(PASSWORD, "wrong"), encoding="ascii")

    ended = impact.run(**EVENT)

    assert ended.last_line == (
        "OpenStack answers 401: The request you have made requires authentication.; "
        "check the credentials"
    )
    assert len(cloud.api.asked) == 1, "an account is not locked out by attempts"


def test_region_without_nova_is_named(impact: Program, tmp_path: Path) -> None:
    path = tmp_path / "openrc"
    path.write_text(path.read_text("ascii").replace("RegionOne", "Mars"), encoding="ascii")

    assert impact.run(**EVENT).last_line == (
        'the catalog has no public endpoint of compute in region "Mars"'
    )


def test_certificate_is_verified(cloud: Cloud, tmp_path: Path, pair: Pair) -> None:
    with cloud.api.listening(pair):
        path = write_credentials(tmp_path, cloud.api.url)
        impact = replace(bare(), arguments=("--credentials", str(path), *FAST))
        stranger = impact.run(**EVENT)
        seen = len(cloud.api.asked)
        trusted = impact.run("--ca-file", str(pair.certificate), **EVENT)

    assert (stranger.status, seen) == (1, 0)
    assert stranger.last_line.startswith('cannot verify the certificate of "https://127.0.0.1:')
    assert stranger.last_line.endswith("; name its authority with --ca-file")
    assert trusted.last_line == "web-0 is stopped"


def test_secrets_are_not_sent_in_clear_text_to_another_machine(tmp_path: Path) -> None:
    path = write_credentials(tmp_path, "", "OS_AUTH_URL=http://keystone.invalid", "OS_PASSWORD=x",
                             "OS_USER_ID=a", "OS_PROJECT_ID=b")  # fmt: skip

    refused = bare().run("--credentials", str(path), **EVENT)
    allowed = bare().run("--credentials", str(path), "--allow-http", **EVENT)

    assert refused.last_line == (
        '"http://keystone.invalid/v3/auth/tokens" takes secrets unencrypted; '
        "use https or --allow-http"
    )
    assert allowed.last_line.startswith('no answer from "http://keystone.invalid/')


def test_token_does_not_follow_a_redirect(cloud: Cloud, impact: Program) -> None:
    cloud.api.fail("GET", Reply(307, None, {"Location": f"{cloud.api.url}/elsewhere"}))

    assert impact.run(**EVENT).status == 1
    assert "/elsewhere" not in {each.path for each in cloud.api.asked}


@pytest.mark.parametrize(
    ("text", "mode", "reason"),
    [
        ("OS_AUTH_URL=x", 0o604, "all users can read"),
        ("OS_AUTH_URL='x", 0o600, "cannot read the credentials"),
        ("", 0o600, "set OS_AUTH_URL"),
        ("OS_AUTH_URL=x OS_PASSWORD=y", 0o600, "set OS_USERNAME"),
        (
            "OS_AUTH_URL=x OS_PASSWORD=y OS_USER_ID=z OS_PROJECT_ID=p",
            0o600,
            '"x/v3/auth/tokens" is not a URL',
        ),
        ("OS_AUTH_URL=x OS_CACERT=none", 0o600, 'cannot use the CA file "none"'),
    ],
)
def test_bad_credentials_are_named(tmp_path: Path, text: str, mode: int, reason: str) -> None:
    path = write_credentials(tmp_path, "", text or "#")
    path.chmod(mode)

    ended = bare().run("--credentials", str(path), **EVENT)

    assert ended.status == 1
    assert ended.last_line.startswith(reason)


def test_missing_file_of_credentials_is_named() -> None:
    assert bare().run("--credentials", "none", **EVENT).last_line == (
        'cannot read the credentials "none": No such file or directory'
    )


@pytest.mark.parametrize("name", ["nova_impact.py", "nova_inventory.py", "nova_host_work.py"])
def test_help_is_short_and_needs_nothing(program: ProgramMaker, name: str) -> None:
    ended = replace(program(name), arguments=()).run("--help")

    assert ended.status == 0
    assert "--credentials" in ended.printed


def test_secret_is_in_no_output(cloud: Cloud, impact: Program) -> None:
    cloud.api.fail("POST .*/action", Reply(500))

    ended = impact.run(**EVENT)

    assert PASSWORD not in ended.printed + ended.said
    assert "gAAAA" not in ended.printed + ended.said
