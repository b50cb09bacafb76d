"""Who may do what, and with which token."""

from dataclasses import replace
from datetime import UTC, datetime, timedelta

import pytest

from forewarn.domain.access import (
    LINK_LIFE,
    SESSION_IDLE,
    ConsoleSession,
    OutsideScopesError,
    Principal,
    RoleTooLowError,
    Token,
    TokenExpiredError,
    TokenOrderError,
    TokenRevokedError,
    check_token,
    select_scope,
)
from forewarn.domain.amending import build_topology
from forewarn.domain.errors import (
    DomainError,
    InvalidNameError,
)
from forewarn.domain.names import HostName, ScopeId, VmName
from forewarn.domain.roles import LADDER, MAY, Role
from forewarn.domain.topology import (
    DeliveryScope,
    ScopeKind,
    VirtualMachine,
    standalone,
)

NOON = datetime(2026, 3, 2, 12, tzinfo=UTC)
HOUR = timedelta(hours=1)
SECOND = timedelta(seconds=1)
TOKEN = Token(name="ada", token_hash="0" * 64, role=Role.OPERATOR, created_at=NOON)
RELAY = replace(TOKEN, role=Role.RELAY, host=HostName("kvm-1"))
SESSION = ConsoleSession(
    session_hash="1" * 64,
    token_hash=TOKEN.token_hash,
    name="ada",
    is_link=False,
    created_at=NOON,
    used_at=NOON + HOUR,
)
LINK = replace(SESSION, is_link=True, used_at=NOON)
BATCH = DeliveryScope(kind=ScopeKind.SCALE_SET, name="batch")
GROUP = replace(BATCH, placement_group="pg1")
SOLO = standalone(VmName("solo"))
FLEET = build_topology(
    scopes=[BATCH, GROUP, SOLO],
    virtual_machines=[
        VirtualMachine(name=VmName("b-0"), scope_id=BATCH.scope_id),
        VirtualMachine(name=VmName("b-1"), scope_id=GROUP.scope_id),
        VirtualMachine(name=VmName("solo"), scope_id=SOLO.scope_id),
    ],
)


@pytest.mark.parametrize(
    ("role", "may_do_the_work_of"),
    [
        (Role.VIEWER, {Role.VIEWER}),
        (Role.OPERATOR, {Role.VIEWER, Role.OPERATOR}),
        (Role.ADMIN, {Role.VIEWER, Role.OPERATOR, Role.ADMIN}),
        (Role.RELAY, {Role.RELAY}),
    ],
)
def test_role_includes_those_below_it(role: Role, may_do_the_work_of: set[Role]) -> None:
    assert {needed for needed in Role if role.includes(needed)} == may_do_the_work_of


def test_every_role_is_in_the_table() -> None:
    assert tuple(MAY) == tuple(Role)


def test_role_that_is_too_low_is_refused_with_the_one_needed() -> None:
    ada = Principal(name="ada", role=Role.OPERATOR)

    ada.require(Role.VIEWER)
    ada.require(Role.OPERATOR)
    with pytest.raises(RoleTooLowError, match="needs the role admin; ada has the role operator"):
        ada.require(Role.ADMIN)


@pytest.mark.parametrize(
    ("scopes", "scope", "covered"),
    [
        ((), "availability-set/web", True),
        (("availability-set/web",), "availability-set/web", True),
        (("availability-set/web",), "availability-set/web-2", False),
        (("scale-set/batch",), "scale-set/batch/pg1", True),
        (("scale-set/batch/pg1",), "scale-set/batch/pg2", False),
        (("scale-set/batch/pg1",), "scale-set/batch", False),
        (("virtual-machine/a", "virtual-machine/b"), "virtual-machine/b", True),
    ],
)
def test_token_covers_its_scopes(scopes: tuple[ScopeId, ...], scope: str, *, covered: bool) -> None:
    ada = Principal(name="ada", role=Role.VIEWER, scopes=scopes)

    assert ada.covers(ScopeId(scope)) is covered


def test_refusal_names_what_is_in_other_scopes() -> None:
    refusal = OutsideScopesError("ada", ["b-0", "solo"])

    assert "would also affect b-0, solo, and the token ada is limited" in str(refusal)
    assert refusal.vms == ("b-0", "solo")


@pytest.mark.parametrize(
    ("token", "refusal"),
    [
        (TOKEN, None),
        (replace(TOKEN, expires_at=NOON + SECOND), None),
        (replace(TOKEN, expires_at=NOON), TokenExpiredError),
        (replace(TOKEN, revoked_at=NOON), TokenRevokedError),
        (replace(TOKEN, revoked_at=NOON, expires_at=NOON - HOUR), TokenRevokedError),
    ],
)
def test_token_grants_until_it_ends(token: Token, refusal: type[DomainError] | None) -> None:
    assert token.is_live(NOON) is (refusal is None)
    if refusal is None:
        token.check_live(NOON)
    else:
        with pytest.raises(refusal, match="ada"):
            token.check_live(NOON)


def test_who_shows_a_token_is_what_it_says() -> None:
    token = replace(TOKEN, scopes=(BATCH.scope_id,))

    assert token.principal == Principal(name="ada", role=Role.OPERATOR, scopes=(BATCH.scope_id,))
    assert RELAY.principal == Principal(name="ada", role=Role.RELAY, host=HostName("kvm-1"))


@pytest.mark.parametrize(
    ("token", "sentence"),
    [
        (replace(TOKEN, name="Admin"), "is reserved for the server"),
        (replace(TOKEN, name="scheduler"), "is reserved for the server"),
        (replace(TOKEN, expires_at=NOON), "cannot expire before"),
        (replace(TOKEN, role=Role.ADMIN, scopes=(BATCH.scope_id,)), "cannot be limited to scopes"),
        (replace(RELAY, host=None), "needs the name of its host"),
        (replace(RELAY, scopes=(BATCH.scope_id,)), "omit the scopes"),
        (replace(TOKEN, host=HostName("kvm-1")), "Only a token with the role relay"),
    ],
)
def test_token_that_makes_no_sense_is_refused(token: Token, sentence: str) -> None:
    with pytest.raises(TokenOrderError, match=sentence):
        check_token(token)


@pytest.mark.parametrize("name", ["", "-", "a b", "a/b", "a\n", "ä", "x" * 129])
def test_name_that_does_not_travel_is_refused(name: str) -> None:
    with pytest.raises(InvalidNameError, match="for a token"):
        check_token(replace(TOKEN, name=name))


def test_name_of_a_host_that_does_not_travel_is_refused() -> None:
    with pytest.raises(InvalidNameError, match="for a host"):
        check_token(replace(RELAY, host=HostName("kvm 1")))


@pytest.mark.parametrize("token", [RELAY, *(replace(TOKEN, role=role) for role in LADDER)])
def test_token_of_any_role_can_be(token: Token) -> None:
    check_token(replace(token, expires_at=NOON + SECOND))


@pytest.mark.parametrize(
    ("name", "scope"),
    [
        ("batch", "scale-set/batch"),
        ("BATCH", "scale-set/batch"),
        ("scale-set/batch/PG1", "scale-set/batch/pg1"),
        ("solo", "virtual-machine/solo"),
        ("pg1", None),
        ("b-0", None),
    ],
)
def test_scope_is_selected_by_name_or_id(name: str, scope: str | None) -> None:
    assert select_scope(FLEET, name) == scope


@pytest.mark.parametrize(
    ("session", "ends_at"),
    [(SESSION, NOON + HOUR + SESSION_IDLE), (LINK, NOON + LINK_LIFE)],
    ids=["session", "link"],
)
def test_session_lasts_while_it_is_used_and_a_link_for_minutes(
    session: ConsoleSession, ends_at: datetime
) -> None:
    assert session.ends_at == ends_at
    assert session.is_live(ends_at - SECOND)
    assert not session.is_live(ends_at)
