"""Sentences of the rules, as pages show them."""

from forewarn.console.rendering import said

EVENT = "7E29A74C-2BA0-4AF3-8DE0-19D09D39063B"


def test_sentence_has_links_and_local_times() -> None:
    shown = said(f"Event {EVENT} of {EVENT.lower()} waits until 2026-01-05 08:15:00 GMT.")

    assert shown == (
        f'<bdi>Event <a class="id" href="/events/{EVENT}">7E29A74C</a> of '
        f'<a class="id" href="/maintenances/{EVENT.lower()}">7e29a74c</a> waits until '
        '<time datetime="2026-01-05T08:15:00Z" data-as="when" title="2026-01-05 08:15:00 GMT">'
        "2026-01-05 08:15:00</time>.</bdi>"
    )


def test_words_of_others_are_harmless() -> None:
    assert said("<b>\u202e{0} at 2026-99-99 99:99:99 GMT") == (
        "<bdi>&lt;b&gt;\u25af{0} at 2026-99-99 99:99:99 GMT</bdi>"
    )


def test_days_that_there_are_not_are_no_times() -> None:
    assert said("2026-02-31 08:15:00 GMT") == "<bdi>2026-02-31 08:15:00 GMT</bdi>"
