"""Settings: flag > environment > file > default, and one sentence for what is wrong."""

from collections.abc import Callable
from pathlib import Path
from traceback import format_exception
from types import NoneType
from typing import get_args, get_origin

import pytest
from pydantic import ValidationError

from forewarn.cli.settings import load_cli_settings
from forewarn.environment import SettingsError, environment_with
from forewarn.settings import Settings, load_settings, make_settings
from forewarn.settings_table import SETTINGS, ClockKind

SECRET = "a secret of more than twenty letters"  # noqa: S105  # noqa: S105
Write = Callable[[str], Path]


@pytest.fixture(autouse=True)
def clean(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    for name in Settings.model_fields:
        monkeypatch.delenv(f"FOREWARN_{name.upper()}", raising=False)


@pytest.fixture
def write(tmp_path: Path) -> Write:
    def write_file(text: str) -> Path:
        path = tmp_path / "forewarn.toml"
        path.write_text(text)
        return path

    return write_file


def test_defaults_are_those_of_the_documentation() -> None:
    settings = load_settings({})

    assert settings.database == "sqlite:///forewarn.db"
    assert settings.metadata == ("127.0.0.1:8169",)
    assert settings.control == "127.0.0.1:8170"
    assert (settings.clock, settings.speed, settings.executor) == ("real", 1, "manual")
    assert (settings.notice, settings.user_initiated_limit) == ("always", 10)
    assert settings.migrate
    assert settings.state_directory == Path()


def test_flag_wins_over_environment_over_file_over_default(
    write: Write, monkeypatch: pytest.MonkeyPatch
) -> None:
    write('control = "127.0.0.1:1"\nexecutor = "simulated"\nspeed = 2\n')
    monkeypatch.setenv("FOREWARN_SPEED", "3")
    monkeypatch.setenv("FOREWARN_CONTROL", "127.0.0.1:2")

    settings = load_settings({"control": "127.0.0.1:3", "speed": None})

    assert settings.control == "127.0.0.1:3"
    assert settings.speed == 3
    assert settings.executor == "simulated"
    assert settings.notice == "always"


def test_config_names_another_file(tmp_path: Path) -> None:
    other = tmp_path / "other.toml"
    other.write_text('database = "sqlite:////var/lib/forewarn/db"\nclock = "virtual"\n')

    settings = load_settings({}, other)

    assert settings.database_path == Path("/var/lib/forewarn/db")
    assert settings.state_directory == Path("/var/lib/forewarn")
    assert settings.clock is ClockKind.VIRTUAL


@pytest.mark.parametrize("given", ["sqlite:///state/my.db", "state/my.db"])
def test_database_is_a_plain_path_or_a_url(given: str) -> None:
    settings = load_settings({"database": given})

    assert settings.database == "sqlite:///state/my.db"
    assert settings.database_path == Path("state/my.db")


def test_environment_lists_with_commas(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("FOREWARN_METADATA", "127.0.0.1:80, [::1]:80,unix:/run/forewarn.sock")

    assert load_settings({}).metadata == ("127.0.0.1:80", "[::1]:80", "unix:/run/forewarn.sock")


@pytest.mark.parametrize(
    "given",
    [
        "host=db password=hunter2",
        "password='hunter2' host=db",
        "host%3Ddb%20password%3Dhunter2",
        "sqlite:///host=db password=hunter2",
        "sqlite:///forewarn.db?password=hunter2",
        "postgresql:/u:hunter2@db/x",
        "postgresql%3A//u:hunter2@db/x",
        "u:hunter2@db/x",
        "//u:hunter2@db/x",
        "mysql://u:hunter2@db/x",
        "postgresql://u:x@hunter2@db/x",
        "postgresql://u:x/hunter2@db/x",
        "postgresql://u:x?hunter2@db/x",
        "postgresql://u:x hunter2@db/x",
        "postgresql://u:x#hunter2@db/x",
        "postgresql://u%3Ahunter2@db/x",
        "postgresql://u:hunter2/x",
        "postgresql://postgresql://u:hunter2@db/x",
        "postgresql://host=db password=hunter2",
        "postgresql:///host=db password=hunter2",
        "postgresql:///host%3Ddb%20password%3Dhunter2",
        "postgresql:///u:hunter2@db/x",
        "postgresql:///u:hunter2%40db",
        "postgresql:///u%3Ahunter2%40db",
    ],
)
def test_malformed_database_is_refused_without_its_password(given: str) -> None:
    with pytest.raises(SettingsError, match="Invalid setting database: not a valid ") as refused:
        load_settings({"database": given})

    assert "hunter2" not in str(refused.value)


@pytest.mark.parametrize(
    "given",
    [
        "postgresql://",
        "postgresql:///x?host=%2Frun%2Fpostgresql&user=me@there",
        "postgresql://%2Frun%2Fpostgresql/x",
        "postgresql://u:p%40%2F%3Aw@a:1,[::1]:2,c/x?sslmode=require&options=-csearch_path%3Dx",
        "postgresql://u:@db?connect_timeout=9",
        "postgresql://me%40corp:pw@db/x",
        "postgresql:///?service=forewarn",
    ],
)
def test_well_formed_url_of_a_server_is_taken_as_it_is(given: str) -> None:
    assert load_settings({"database": given}).database == given


def test_traceback_of_a_malformed_database_does_not_show_its_password() -> None:
    flags = {"database": "mysql://u:hunter2@db/x"}

    with pytest.raises(SettingsError) as refused:
        load_settings(flags)

    assert "hunter2" not in "".join(format_exception(refused.value))


@pytest.mark.parametrize(
    ("flags", "sentence"),
    [
        ({"speed": 0.5}, "Invalid setting speed: 0.5 is too low; the minimum is 1.0."),
        ({"speed": "nan"}, "Invalid setting speed: 'nan' is not a finite number."),
        ({"speed": "fast"}, "Invalid setting speed: 'fast' is not a number."),
        ({"paused": "maybe"}, "Invalid setting paused: 'maybe' is neither true nor false."),
        ({"user_initiated_limit": "x"}, "Invalid setting user_initiated_limit: 'x' is not a"),
        (
            {"speed": 2, "clock": "virtual"},
            "The setting speed cannot be used with the virtual clock.",
        ),
        (
            {"history_retention": "90d", "clock": "virtual"},
            "The setting history_retention cannot be used with the virtual clock.",
        ),
        (
            {"history_retention": "23h", "document_retention": "1h"},
            "The setting history_retention must be at least 1d and not shorter than document_ret",
        ),
        (
            {"history_retention": "29d"},
            "The setting history_retention must be at least 1d and not shorter than document_ret",
        ),
        (
            {"history_retention": "soon"},
            "Invalid setting history_retention: Invalid duration 'soon'",
        ),
        (
            {"clock": "lunar"},
            "Invalid setting clock: 'lunar' is not one of 'real' or 'virtual'.",
        ),
        (
            {"metadata": ["x"]},
            "Invalid setting metadata: 'x' is not a valid address; use HOST:PORT",
        ),
        ({"metadata": []}, "Invalid setting metadata: "),
        ({"control": "unix:/x"}, "Invalid setting control: the control API can only listen on"),
        ({"control": "h:65536"}, "Invalid setting control: 'h:65536' is not a valid address"),
        (
            {"database": "postgresql://h/d", "clock": "virtual"},
            "The virtual clock needs a SQLite database, not PostgreSQL.",
        ),
        (
            {"database": "postgresql://h/d", "journal": True},
            "The setting journal needs a SQLite database, not PostgreSQL.",
        ),
        ({"database": "sqlite:///"}, "Invalid setting database: not a valid database URL"),
        (
            {"database": "mysql://u:p@h/d"},
            "Invalid setting database: not a valid database URL",
        ),
        ({"database": ""}, "Invalid setting database: not a valid database URL"),
        ({"user_initiated_limit": 0}, "Invalid setting user_initiated_limit: "),
        ({"metadata_socket_mode": "0999"}, "Invalid setting metadata_socket_mode: '0999' is"),
        ({"control_host": ["http://x"]}, "Invalid setting control_host: 'http://x' is not a"),
        ({"trusted_proxies": ["x"]}, "Invalid setting trusted_proxies: 'x' is neither"),
        ({"trusted_proxies": ["10.0.0.0/8"]}, "The setting trusted_proxies needs proxy_secret."),
        (
            {"trusted_proxies": ["10.0.0.1"], "proxy_secret": "x", "trust_path": True},
            "The setting trust_path cannot be used with trusted_proxies.",
        ),
        ({"proxy_secret": ""}, "Invalid setting proxy_secret: it is empty."),
        ({"executor": "magic"}, "Invalid setting executor: "),
        ({"log_format": "xml"}, "Invalid setting log_format: "),
        ({"log_level": "loud"}, "Invalid setting log_level: "),
    ],
)
def test_bad_value_is_one_sentence_that_names_the_setting(
    flags: dict[str, object], sentence: str
) -> None:
    with pytest.raises(SettingsError) as refused:
        load_settings(flags)

    assert str(refused.value).startswith(sentence)
    assert str(refused.value).endswith(".")
    assert "\n" not in str(refused.value)


@pytest.mark.parametrize(
    ("text", "sentence"),
    [
        ("sped = 2\n", "forewarn.toml: unknown setting 'sped'."),
        ("[serve]\nspeed = 2\n", "forewarn.toml: unknown setting 'serve'."),
        ("speed = = 2\n", "forewarn.toml is not valid TOML: "),
        ("speed = 'fast'\n", "Invalid setting speed: "),
    ],
)
def test_bad_file_is_one_sentence(write: Write, text: str, sentence: str) -> None:
    write(text)

    with pytest.raises(SettingsError) as refused:
        load_settings({})

    assert str(refused.value).startswith(sentence)


def test_missing_config_file_is_an_error_only_when_it_was_named() -> None:
    with pytest.raises(SettingsError, match=r"no\.toml cannot be read: No such file"):
        load_settings({}, Path("no.toml"))


def test_settings_are_frozen_and_keep_the_secret() -> None:
    settings = Settings(proxy_secret="hush")  # noqa: S106

    assert "hush" not in repr(settings)
    with pytest.raises(ValidationError, match="frozen"):
        settings.control = "x"


def test_settings_made_directly_do_not_see_the_environment(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setenv("FOREWARN_CONTROL", "127.0.0.1:1")

    assert Settings().control == "127.0.0.1:8170"


def test_commands_take_server_and_token_from_the_environment(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setenv("FOREWARN_SERVER", "http://h:1")
    monkeypatch.setenv("FOREWARN_TOKEN", "t")

    settings = load_cli_settings()

    assert (settings.server, settings.find_token("http://h:1")) == ("http://h:1", "t")
    assert "'t'" not in repr(settings)


def test_commands_find_the_server_by_the_settings_beside_them(
    tmp_path: Path,
) -> None:
    (tmp_path / "data").mkdir()
    (tmp_path / "data" / "admin.token").touch(mode=0o600)
    (tmp_path / "data" / "admin.token").write_text(SECRET)
    (tmp_path / "forewarn.toml").write_text(
        'database = "sqlite:///data/f.db"\ncontrol = "127.0.0.1:9"\n'
    )

    found = load_cli_settings()

    assert (found.server, found.find_token(found.server)) == ("http://127.0.0.1:9", SECRET)


@pytest.mark.parametrize(
    ("control", "server"),
    [
        ("", "https://127.0.0.1:8170"),
        ('control = "[::1]:9"\n', "https://[::1]:9"),
    ],
)
def test_commands_come_over_tls_where_the_server_has_a_certificate(
    tmp_path: Path, control: str, server: str
) -> None:
    files = 'control_certificate = "c.pem"\ncontrol_key = "k.pem"\n'
    (tmp_path / "forewarn.toml").write_text(control + files)

    assert load_cli_settings().server == server


@pytest.mark.parametrize(
    ("values", "problem"),
    [
        ({"clock": "virtual", "speed": 60}, "speed cannot be used with the virtual clock"),
        ({"speed": 2_000_000}, "Invalid setting speed"),
        ({"notice": "bogus"}, "Invalid setting notice"),
    ],
)
def test_values_of_a_program_are_refused_in_one_sentence_too(
    values: dict[str, object], problem: str
) -> None:
    with pytest.raises(SettingsError, match=problem):
        make_settings(values)


def test_process_started_here_is_told_nothing_about_another_server(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    for name in ("FOREWARN_TOKEN", "forewarn_server", "FOREWARN_METADATA", "SCHEDULEDEVENTSIP"):
        monkeypatch.setenv(name, "127.0.0.1:1")
    monkeypatch.setenv("HOME", "/home/web")

    environment = environment_with({"FOREWARN_STATE_DIR": "/state"})

    told = {name for name in environment if name.upper().startswith(("FOREWARN_", "SCHEDULED"))}
    assert told == {"FOREWARN_STATE_DIR"}
    assert environment["HOME"] == "/home/web"


def test_table_of_settings_says_what_their_types_are() -> None:
    """Flags are read by the table, and checked by the settings."""
    assert list(SETTINGS) == list(Settings.model_fields)
    for name, setting in SETTINGS.items():
        annotation = Settings.model_fields[name].annotation
        kinds = {*get_args(annotation), annotation} - {NoneType}
        assert (
            get_origin(annotation) is tuple
            if isinstance(setting.default, tuple)
            else setting.kind in kinds
        ), name


@pytest.mark.parametrize(
    "database",
    ["", "postgresql://u:pw@db/forewarn", "postgres://db/x", "state/my.db", "sqlite:////var/db"],
)
def test_commands_look_for_the_admin_token_where_the_server_keeps_it(
    monkeypatch: pytest.MonkeyPatch, database: str
) -> None:
    if database:
        monkeypatch.setenv("FOREWARN_DATABASE", database)

    assert load_cli_settings().state_dir == load_settings({}).state_directory
