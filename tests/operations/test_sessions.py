"""Browsers are signed in with a token or a link, for as long as they are used."""

from concurrent.futures import ThreadPoolExecutor
from dataclasses import replace
from datetime import datetime, timedelta
from functools import partial

import pytest

from forewarn.domain.access import (
    LINK_LIFE,
    LINKS_OF_A_TOKEN,
    SESSION_IDLE,
    ConsoleSession,
    SignInLinkError,
    SignInLinksError,
)
from forewarn.operations.context import Context
from forewarn.operations.sessions import (
    SESSION_USE_NOTED_AFTER,
    begin_session,
    create_link,
    end_session,
    find_link,
    find_session,
    note_session_use,
    redeem_link,
    session_needs_noting,
    sessions_kept_since,
)
from forewarn.ports.store import Store, Transaction

TOKEN_HASH = "0" * 64
CODE, SECRET = "fw_" + "c" * 43, "fw_" + "s" * 43
SECOND = timedelta(seconds=1)


def link(store: Store, context: Context) -> ConsoleSession:
    return store.write(lambda tx: create_link(tx, context, TOKEN_HASH, CODE))


def begin(store: Store, context: Context) -> ConsoleSession:
    return store.write(lambda tx: begin_session(tx, context, TOKEN_HASH, SECRET))


def redeem(store: Store, context: Context, secret: str = SECRET) -> ConsoleSession:
    return store.write(lambda tx: redeem_link(tx, context, CODE, secret))


def find(store: Store, at: datetime, secret: str = SECRET) -> ConsoleSession | None:
    return store.read(lambda reading: find_session(reading, secret, at))


def note(store: Store, session: ConsoleSession, at: datetime) -> None:
    store.write(lambda tx: note_session_use(tx, session.session_hash, at))


def prune(tx: Transaction, *, before: datetime) -> int:
    return tx.prune_sessions(before=before)


def lines(store: Store) -> list[tuple[str, ...]]:
    entries = store.read(lambda reading: reading.audit())
    return [(each.who, each.where, each.action, each.subject, each.detail) for each in entries]


def test_session_is_found_by_its_secret_until_it_is_idle(store: Store, operator: Context) -> None:
    made = begin(store, operator)

    assert (made.name, made.token_hash) == ("alice", TOKEN_HASH)
    assert find(store, operator.at) == made
    assert find(store, operator.at, "fw_other") is None
    assert find(store, operator.at + SESSION_IDLE - SECOND) == made
    assert find(store, operator.at + SESSION_IDLE) is None


def test_link_is_no_session_and_a_session_no_link(store: Store, operator: Context) -> None:
    link(store, operator)
    begin(store, operator)

    assert find(store, operator.at, CODE) is None
    with pytest.raises(SignInLinkError):
        store.read(lambda reading: find_link(reading, SECRET, operator.at))


def test_link_signs_in_once(store: Store, operator: Context) -> None:
    made = link(store, operator)

    assert made.ends_at == operator.at + LINK_LIFE
    session = redeem(store, operator)
    with pytest.raises(SignInLinkError, match="already used"):
        redeem(store, operator, "fw_second")

    assert find(store, operator.at) == session
    assert (session.name, session.token_hash) == (made.name, made.token_hash)
    assert store.read(lambda reading: reading.session(made.session_hash)) is None
    assert find(store, operator.at, "fw_second") is None


def test_link_signs_nobody_in_when_its_time_is_over(store: Store, operator: Context) -> None:
    link(store, operator)

    with pytest.raises(SignInLinkError):
        redeem(store, replace(operator, at=operator.at + LINK_LIFE))
    assert not redeem(store, replace(operator, at=operator.at + LINK_LIFE - SECOND)).is_link


def test_token_has_few_unused_links(store: Store, operator: Context) -> None:
    def make(number: int, context: Context = operator, token_hash: str = TOKEN_HASH) -> None:
        store.write(lambda tx: create_link(tx, context, token_hash, f"fw_{number}"))

    link(store, operator)
    for number in range(1, LINKS_OF_A_TOKEN):
        make(number)
    with pytest.raises(SignInLinksError, match="alice already has 10 unused sign-in links"):
        make(10)
    make(11, token_hash="1" * 64)
    redeem(store, operator)
    make(12)
    with pytest.raises(SignInLinksError):
        make(13, replace(operator, at=operator.at + LINK_LIFE - SECOND))

    make(14, replace(operator, at=operator.at + LINK_LIFE))


def test_one_of_two_browsers_that_have_a_link_is_signed_in(store: Store, operator: Context) -> None:
    link(store, operator)
    secrets = [f"fw_{number}" for number in range(8)]

    with ThreadPoolExecutor(len(secrets)) as pool:
        attempts = [pool.submit(partial(redeem, store, operator, each)) for each in secrets]

    refused = [each for each in attempts if isinstance(each.exception(), SignInLinkError)]
    assert len(refused) == len(secrets) - 1
    assert len([each for each in secrets if find(store, operator.at, each)]) == 1


def test_use_is_noted_once_a_minute(store: Store, operator: Context) -> None:
    made = begin(store, operator)

    seen = []
    for passed in (SECOND, SESSION_USE_NOTED_AFTER, SESSION_USE_NOTED_AFTER + SECOND):
        note(store, made, operator.at + passed)
        found = find(store, operator.at)
        assert found is not None
        seen.append(found.used_at - operator.at)

    assert seen == [timedelta(), SESSION_USE_NOTED_AFTER, SESSION_USE_NOTED_AFTER]
    assert session_needs_noting(made, operator.at + SESSION_USE_NOTED_AFTER)
    assert not session_needs_noting(made, operator.at + SECOND)


def test_session_that_has_ended_is_not_brought_back(store: Store, operator: Context) -> None:
    idle = begin(store, operator)
    note(store, idle, operator.at + SESSION_IDLE)
    assert find(store, operator.at) == idle

    store.write(lambda tx: end_session(tx, operator, SECRET))
    note(store, idle, operator.at + SESSION_USE_NOTED_AFTER)

    assert find(store, operator.at) is None


def test_nothing_is_forgotten_that_has_not_ended(store: Store, operator: Context) -> None:
    session, made = begin(store, operator), link(store, operator)
    ends = max(session.ends_at, made.ends_at)

    kept = [sessions_kept_since(replace(operator, at=at)) for at in (ends, ends + SECOND)]
    counts = [store.write(partial(prune, before=before)) for before in kept]

    assert counts == [0, 2]


def test_everything_is_written_down_without_secrets(store: Store, operator: Context) -> None:
    operator = replace(operator, where="10.0.0.1")
    link(store, operator)
    redeem(store, operator)
    begin(store, operator)
    for _ in range(2):
        store.write(lambda tx: end_session(tx, operator, SECRET))

    assert lines(store) == [
        ("alice", "10.0.0.1", "console link", "alice", ""),
        ("alice", "10.0.0.1", "console sign in", "alice", "with a link"),
        ("alice", "10.0.0.1", "console sign in", "alice", "with the token"),
        ("alice", "10.0.0.1", "console sign out", "alice", ""),
    ]
