import pytest

from forewarn.console.site import RenderedMain, RenderedPages

PAGE = RenderedMain("digest", b"page")


def render_page() -> RenderedMain:
    return PAGE


def fail() -> RenderedMain:
    raise ValueError("no such luck")


def test_many_who_ask_for_a_page_at_once_share_one_rendering() -> None:
    pages = RenderedPages()

    (first, is_new), *others = [pages.claim("/", 1) for _ in range(8)]
    pages.make("/", first, render_page)

    assert is_new
    assert others == [(first, False)] * 7
    assert first.result() is PAGE


def test_page_is_made_again_after_a_change_and_for_others() -> None:
    pages = RenderedPages()

    asked = (("/", 1), ("/", 1), ("/", 2), ("/fleet", 2), ("/", 2))
    made = [pages.claim(key, stamp)[1] for key, stamp in asked]

    assert made == [True, False, True, True, False]


def test_those_who_wait_for_a_page_that_fails_are_told_and_others_try_again() -> None:
    pages = RenderedPages()
    first, _ = pages.claim("/", 1)
    second, _ = pages.claim("/", 1)

    pages.make("/", first, fail)

    for each in (first, second):
        with pytest.raises(ValueError, match="no such luck"):
            each.result()
    assert pages.claim("/", 1)[1]
