"""One frame says what is going on, in 24 lines of 80 columns and in others."""

from dataclasses import replace
from datetime import timedelta

import pytest
from tests.unit.demonstration.conftest import LINK, NOW, announced, make_scene, started

from forewarn.cli.demonstration.screen import COMMAND, draw
from forewarn.cli.demonstration.story import Line, Scene
from forewarn.domain.event import Outcome, complete

DOCUMENT = '{"DocumentIncarnation":3,"Events":[{"EventStatus":"Scheduled","NotBefore":"soon"}]}'


def busy_scene() -> Scene:
    first = started(announced("web-0", "kvm-1"), 5)
    done = complete(first, outcome=Outcome.SUCCEEDED, now=NOW + timedelta(seconds=8))
    failed = replace(announced("web-3", "kvm-4"), outcome=Outcome.FAILED, ended_at=NOW)
    running, waiting = started(announced("web-1", "kvm-2"), 1), announced("web-2", "kvm-3")
    scene = make_scene(done, running, waiting, failed, seconds=7.5, suggested=["  try this"])
    scene.document = DOCUMENT
    scene.story = [Line(NOW, f"sentence {number}") for number in range(40)]
    return scene


def frame(scene: Scene, width: int = 80, height: int = 23) -> list[str]:
    lines = draw(scene, width, height)
    assert [line.plain for line in lines if not line.no_wrap] == [LINK]
    return [line.plain.rstrip() for line in lines]


def test_frame_fits_a_usual_terminal_and_begins_with_the_link() -> None:
    lines = frame(busy_scene())

    assert len(lines) == 23
    assert all(len(line) <= 80 for line in lines)
    assert lines[1] == LINK
    assert lines[3] == f"$ {COMMAND}"
    assert lines[-1] == "08:00:00  sentence 39"


def test_bar_of_each_host_says_how_far_it_is() -> None:
    assert [line[:35].rstrip() for line in frame(busy_scene()) if line.startswith("kvm-")][:4] == [
        "kvm-1 ████████████ done 10 s early",
        "kvm-2 ▒▒▒▒▒▒▒▒██░░ frozen",
        "kvm-3 ▒▒▒▒░░░░░░░░ 8 s of notice",
        "kvm-4 ████████████ failed",
    ]


def test_document_gives_way_to_what_to_try_when_the_roll_out_is_over() -> None:
    scene = busy_scene()
    assert '{"DocumentIncarnation":3,' in "".join(frame(scene))

    scene.summary = "Done in 24 s"

    lines = frame(scene)
    assert lines.index("  try this") == lines.index("Done in 24 s") + 4
    assert not any("DocumentIncarnation" in line for line in lines)


@pytest.mark.parametrize(("height", "told"), [(10, 0), (21, 0), (22, 1), (40, 19), (99, 40)])
def test_story_fills_what_is_free(height: int, told: int) -> None:
    lines = frame(busy_scene(), 120, height)

    assert len(lines) <= height
    assert sum("sentence" in line for line in lines) == told


def test_what_others_chose_cannot_control_the_terminal() -> None:
    scene = busy_scene()
    scene.document, scene.story = "\x1b[2J", [Line(NOW, "reason \x1b[2J")]

    assert "\x1b" not in "".join(frame(scene))
