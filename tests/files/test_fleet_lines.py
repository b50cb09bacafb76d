import pytest

from forewarn.domain.errors import DomainOutOfRangeError
from forewarn.files.fleet_lines import FleetLines, subject_of

TEXT = """\
[[host]]
labels = { rack = "a" }
name = "web"
[[ virtual_machine ]]
name = "web"
host = "kvm-1"

[virtual_machine.tags]
team = "shop"
[[virtual_machine]]
host = "kvm-2"
[["scale_set"]]
name = 'Batch'
[[virtual_machine]]
name = "WEB"
[server]
"""


@pytest.mark.parametrize(
    ("subject", "line"),
    [
        ({"table": "virtual_machine", "index": 0}, 5),
        ({"table": "virtual_machine", "index": 0, "key": "host"}, 6),
        ({"table": "virtual_machine", "index": 0, "key": "tags"}, 8),
        ({"table": "virtual_machine", "index": 1}, 10),
        ({"table": "virtual_machine", "index": 1, "key": "host"}, 11),
        ({"table": "virtual_machine", "index": 9}, 4),
        ({"table": "server"}, 16),
        ({"vm": "web", "key": "zone"}, 5),
        ({"vm": "Web"}, 15),
        ({"table": "host", "entry": "web", "key": "labels"}, 2),
        ({"scope": "scale-set/batch/pg1", "setting": "notice"}, 13),
        ({"name": "web"}, 15),
        ({"vm": "nobody"}, None),
        ({}, None),
    ],
)
def test_line_is_found(subject: dict[str, object], line: int | None) -> None:
    assert FleetLines(TEXT).find(subject) == line


def test_line_is_found_in_tables_that_are_written_inline() -> None:
    text = 'virtual_machine = [\n{ name = "a" },\n{ name = "b" },\n]\n'

    assert FleetLines(text).find({"vm": "B"}) == 3
    assert FleetLines(text).find({"table": "virtual_machine", "index": 1, "entry": "a"}) == 2


def test_line_of_an_error_is_found_by_what_it_is_about() -> None:
    error = DomainOutOfRangeError("web", "update domain", 7, 5)

    assert subject_of(error) == {"vm": "web", "key": "update_domain"}
    assert (
        FleetLines('[[virtual_machine]]\nname = "web"\nupdate_domain = 7\n').find(subject_of(error))
        == 3
    )
