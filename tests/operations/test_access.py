"""Tokens are created, shown and taken back; their secrets are kept by nobody."""

import time
from dataclasses import replace
from datetime import datetime, timedelta

import pytest

from forewarn.domain.access import (
    Token,
    TokenExpiredError,
    TokenNameTakenError,
    TokenOrderError,
    TokenRevokedError,
    UnknownTokenError,
)
from forewarn.domain.roles import Role
from forewarn.operations.access import (
    USE_NOTED_AFTER,
    TokenOrder,
    create_token,
    find_token,
    grant_admin,
    hash_secret,
    is_hash_of,
    new_secret,
    note_use,
    redact,
    revoke_token,
)
from forewarn.operations.context import Context
from forewarn.operations.scopes import UnknownSelectionError
from forewarn.ports.store import Store, Transaction

SECRET = "fw_" + "s" * 43
DEPLOY = TokenOrder(name="deploy", role=Role.OPERATOR)
SECOND = timedelta(seconds=1)


def create(
    store: Store, context: Context, order: TokenOrder = DEPLOY, secret: str = SECRET
) -> Token:
    return store.write(lambda tx: create_token(tx, context, order, secret))


def find(store: Store, at: datetime, secret: str = SECRET) -> Token | None:
    return store.read(lambda reading: find_token(reading, hash_secret(secret), at))


def test_token_is_found_by_its_secret(fleet: Store, operator: Context) -> None:
    made = create(fleet, operator)

    assert find(fleet, operator.at) == made
    assert find(fleet, operator.at, "fw_other") is None
    assert (made.name, made.role, made.scopes) == ("deploy", Role.OPERATOR, ())
    assert made.created_at == operator.at


def test_new_admin_token_ends_the_one_before_and_no_other(fleet: Store, operator: Context) -> None:
    deploy = create(fleet, operator)
    fleet.write(lambda tx: grant_admin(tx, operator, "admin", "fw_first"))
    fleet.write(lambda tx: grant_admin(tx, operator, "admin", "fw_second"))

    found = find(fleet, operator.at, "fw_second")
    assert found is not None
    assert (found.name, found.role) == ("admin", Role.ADMIN)
    with pytest.raises(TokenRevokedError):
        find(fleet, operator.at, "fw_first")
    assert find(fleet, operator.at) == deploy


def test_secret_is_not_kept(fleet: Store, operator: Context) -> None:
    create(fleet, operator)

    (token,) = fleet.read(lambda reading: reading.tokens())
    assert SECRET not in repr(token)
    assert SECRET not in repr(fleet.read(lambda reading: reading.audit()))


def test_creation_is_written_down(fleet: Store, operator: Context) -> None:
    create(fleet, replace(operator, where="10.0.0.1"), replace(DEPLOY, scopes=("web",)))

    entry = fleet.read(lambda reading: reading.audit())[-1]
    assert (entry.who, entry.where) == ("alice", "10.0.0.1")
    assert (entry.action, entry.subject) == ("token create", "deploy")
    assert entry.detail == "operator, availability-set/web"


def test_scopes_are_kept_by_their_id_and_once(fleet: Store, operator: Context) -> None:
    order = replace(DEPLOY, scopes=("WEB", "batch", "web", "scale-set/batch/pg1", "solo"))

    made = create(fleet, operator, order)

    assert made.scopes == (
        "availability-set/web",
        "scale-set/batch",
        "scale-set/batch/pg1",
        "virtual-machine/solo",
    )


@pytest.mark.parametrize(("given", "kept"), [("KVM-0", "kvm-0"), ("Kvm-9", "Kvm-9")])
def test_host_of_a_relay_is_spelled_as_in_the_fleet_and_may_be_new(
    fleet: Store, operator: Context, given: str, kept: str
) -> None:
    made = create(fleet, operator, TokenOrder(name="relay", role=Role.RELAY, host=given))

    entry = fleet.read(lambda reading: reading.audit())[-1]
    assert (made.host, entry.detail) == (kept, f"relay, {kept}")
    assert find(fleet, operator.at) == made


def test_unknown_scope_is_refused(fleet: Store, operator: Context) -> None:
    with pytest.raises(UnknownSelectionError, match="'wbe'"):
        create(fleet, operator, replace(DEPLOY, scopes=("web", "wbe")))

    assert fleet.read(lambda reading: reading.tokens()) == ()


def test_limited_admin_is_refused(fleet: Store, operator: Context) -> None:
    with pytest.raises(TokenOrderError, match="use the role operator"):
        create(fleet, operator, replace(DEPLOY, role=Role.ADMIN, scopes=("web",)))


def test_name_is_taken_as_long_as_its_token_lives(fleet: Store, operator: Context) -> None:
    ends = operator.at + SECOND
    create(fleet, operator, replace(DEPLOY, expires_at=ends))

    with pytest.raises(TokenNameTakenError, match="'deploy' already"):
        create(fleet, operator, replace(DEPLOY, name="DEPLOY"), "fw_second")

    create(fleet, replace(operator, at=ends), secret="fw_second")  # noqa: S106
    create(fleet, operator, replace(DEPLOY, name="other"), "fw_third")
    assert len(fleet.read(lambda reading: reading.tokens())) == 3


def test_token_ends_in_real_time(fleet: Store, operator: Context) -> None:
    ends = operator.at + SECOND
    create(fleet, operator, replace(DEPLOY, expires_at=ends))

    assert find(fleet, operator.at) is not None
    with pytest.raises(TokenExpiredError, match="deploy expired on 2026-01-05 08:00:01 GMT"):
        find(fleet, ends)


def test_revoked_token_is_refused_and_its_name_is_free(fleet: Store, operator: Context) -> None:
    create(fleet, operator)

    revoked = fleet.write(lambda tx: revoke_token(tx, operator, "Deploy"))

    assert revoked.revoked_at == operator.at
    with pytest.raises(TokenRevokedError, match="deploy was revoked on"):
        find(fleet, operator.at)
    create(fleet, operator, secret="fw_second")  # noqa: S106
    assert find(fleet, operator.at, "fw_second") is not None
    entry = fleet.read(lambda reading: reading.audit(action="token revoke"))[-1]
    assert (entry.who, entry.subject) == ("alice", "deploy")


def test_newest_token_of_a_name_is_revoked(fleet: Store, operator: Context) -> None:
    ends = operator.at + SECOND
    create(fleet, operator, replace(DEPLOY, expires_at=ends))
    create(fleet, replace(operator, at=ends), secret="fw_second")  # noqa: S106

    fleet.write(lambda tx: revoke_token(tx, operator, "deploy"))

    with pytest.raises(TokenRevokedError):
        find(fleet, ends, "fw_second")
    with pytest.raises(TokenExpiredError):
        find(fleet, ends)


def test_token_is_revoked_once(fleet: Store, operator: Context) -> None:
    create(fleet, operator)
    create(fleet, operator, replace(DEPLOY, name="other"), "fw_second")
    fleet.write(lambda tx: revoke_token(tx, operator, "deploy"))

    for name in ("deploy", "nobody"):
        with pytest.raises(UnknownTokenError, match=f"'{name}'"):
            fleet.write(lambda tx, name=name: revoke_token(tx, operator, name))  # type: ignore[misc]


def test_use_is_noted_now_and_then(fleet: Store, operator: Context) -> None:
    made = create(fleet, operator)

    seen = []
    for passed in (timedelta(), SECOND, USE_NOTED_AFTER):
        at = operator.at + passed
        fleet.write(lambda tx, at=at: note_use(tx, made.token_hash, at))  # type: ignore[misc]
        seen.append(fleet.read(lambda reading: reading.tokens())[0].last_used_at)

    assert seen == [operator.at, operator.at, operator.at + USE_NOTED_AFTER]


def test_use_of_an_unknown_token_is_not_noted(fleet: Store, operator: Context) -> None:
    fleet.write(lambda tx: note_use(tx, "0" * 64, operator.at))

    assert fleet.read(lambda reading: reading.tokens()) == ()


def test_new_secret_is_recognised_as_one() -> None:
    made = {new_secret() for _ in range(100)}

    assert len(made) == 100
    assert {len(secret) for secret in made} == {len("fw_") + 43}
    assert {redact(secret) for secret in made} == {"fw_…"}


def test_secrets_are_compared_as_a_whole() -> None:
    assert is_hash_of(SECRET, hash_secret(SECRET))
    assert not is_hash_of(SECRET, hash_secret(SECRET[:-1]))
    assert not is_hash_of(SECRET, "")


def test_whatever_somebody_types_has_a_hash() -> None:
    typed = {"", "ü", "\ud800", SECRET}

    assert len({hash_secret(each) for each in typed}) == len(typed)


@pytest.mark.parametrize(
    ("text", "shown"),
    [
        (f"/tokens/{SECRET}", "/tokens/fw_…"),
        (f"{SECRET} and {SECRET}.", "fw_… and fw_…."),
        ("fw_short and fw-web", "fw_short and fw-web"),
    ],
)
def test_secret_in_the_wrong_place_is_not_shown(text: str, shown: str) -> None:
    assert redact(text) == shown


def test_ten_thousand_tokens_are_found_as_fast_as_one(fleet: Store, operator: Context) -> None:
    base = create(fleet, operator)
    alone = time_finding(fleet, operator)

    def add_many(tx: Transaction) -> None:
        for number in range(10_000):
            token = replace(base, name=f"t{number}", token_hash=f"{number:064x}")
            tx.put_token(token)

    fleet.write(add_many)

    assert time_finding(fleet, operator) < 10 * alone


def time_finding(fleet: Store, operator: Context) -> float:
    """Return the processor time that a thousand lookups of a token take."""
    assert find(fleet, operator.at) is not None
    began = time.process_time()
    for _ in range(1_000):
        find(fleet, operator.at)
    return time.process_time() - began
