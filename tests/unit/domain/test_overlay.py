import pytest
from hypothesis import given
from hypothesis import strategies as st

from forewarn.domain.overlay import Overlay, revise

KEYS = st.sampled_from("abcdefgh")
STEPS = st.lists(st.tuples(st.dictionaries(KEYS, st.integers()), st.lists(KEYS)))


@given(base=st.dictionaries(KEYS, st.integers()), steps=STEPS)
def test_overlay_is_what_a_dictionary_would_be(
    base: dict[str, int], steps: list[tuple[dict[str, int], list[str]]]
) -> None:
    overlay, plain = Overlay(base), dict(base)
    for put, gone in steps:
        overlay = overlay.revise(put, gone)
        for key in gone:
            plain.pop(key, None)
        plain.update(put)

        assert list(overlay) == list(plain)
        assert list(overlay.items()) == list(plain.items())
        assert list(overlay.values()) == list(plain.values())
        assert len(overlay) == len(plain)
        assert overlay == plain
        assert [overlay.get(key) for key in "abcdefgh"] == [plain.get(key) for key in "abcdefgh"]
        assert [key in overlay for key in "abcdefgh"] == [key in plain for key in "abcdefgh"]


def test_missing_key_is_an_error() -> None:
    overlay = Overlay({"a": 1, "b": 2}).revise({}, ["a"])

    for key in ("a", "c"):
        with pytest.raises(KeyError, match=key):
            overlay[key]


def test_large_mapping_is_shared_until_much_differs() -> None:
    base = dict.fromkeys(range(200), "")

    once = revise(base, {0: "new"})
    twice = revise(once, {200: "new"})
    more = revise(twice, {1: "new"})

    assert isinstance(once, Overlay)
    assert isinstance(twice, Overlay)
    assert isinstance(more, dict)
    assert more == {**base, 0: "new", 1: "new", 200: "new"}
    assert revise(base, {}) is base
    assert revise({}, base) is base
