"""Requests that come again."""

from dataclasses import replace
from datetime import timedelta

import pytest

from forewarn.operations.context import Context
from forewarn.operations.repeats import KEPT_FOR, IdempotencyKeyReusedError, RequestKey, do_once
from forewarn.ports.store import Store

REQUEST = RequestKey(key="k-1", fingerprint="f")


def ask(store: Store, context: Context, answer: str, request: RequestKey = REQUEST) -> str:
    return store.write(lambda tx: do_once(tx, context, request, lambda: answer))


def test_request_that_comes_again_is_answered_as_before(store: Store, operator: Context) -> None:
    assert ask(store, operator, "first") == "first"
    assert ask(store, operator, "second") == "first"
    assert ask(store, replace(operator, who="bob"), "second") == "second"


def test_key_of_another_request_is_refused(store: Store, operator: Context) -> None:
    ask(store, operator, "first")

    with pytest.raises(IdempotencyKeyReusedError, match="Use a new key"):
        ask(store, operator, "second", replace(REQUEST, fingerprint="other"))


def test_key_means_nothing_after_a_day(store: Store, operator: Context) -> None:
    ask(store, operator, "first")
    later = replace(operator, at=operator.at + KEPT_FOR + timedelta(microseconds=1))

    assert ask(store, later, "second", replace(REQUEST, fingerprint="other")) == "second"
