"""How the lab reads what small guests say."""

from tests.lab.small_guests import longest_gap, read_ticks

BOOT_ID = "28020059-0a75-41ee-adea-916cbbc65fa0"
EMPTY = '{"DocumentIncarnation":0,"Events":[]}'
EVENT = '{"EventId":"A","EventStatus":"Scheduled","EventType":"Reboot"}'


def say(seconds: int, document: str) -> str:
    return f"tick|{seconds}.20|{BOOT_ID}|200|Tue, 17 Nov 2026 12:57:{seconds} GMT|{document}\r\n"


def test_polls_are_read_with_what_they_were_answered() -> None:
    document = f'{{"DocumentIncarnation":1,"Events":[{EVENT}]}}'
    unanswered, answered = read_ticks(f"tick|9.20|{BOOT_ID}|||\r\n" + say(21, document))

    assert (unanswered.status, unanswered.at, unanswered.statuses) == (0, 0.0, {})
    assert (answered.status, answered.uptime, answered.boot_id) == (200, 21.2, BOOT_ID)
    assert answered.statuses == {"A": "Scheduled"}


def test_line_that_a_reset_has_cut_off_is_no_poll() -> None:
    cut_off = say(21, EMPTY)[:-10]

    assert read_ticks(f"{cut_off}boot|{BOOT_ID}\r\n") == []
    assert len(read_ticks(f"{cut_off}\x1b[0m{say(22, EMPTY)}")) == 1


def test_gap_is_what_the_relay_has_seen_of_it() -> None:
    ticks = read_ticks(say(21, EMPTY) + say(22, EMPTY) + say(31, EMPTY) + say(32, EMPTY))

    assert longest_gap(ticks) == 9.0
