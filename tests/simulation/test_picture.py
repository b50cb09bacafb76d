"""The picture of a seed shows who led, what ran, and what went wrong."""

from xml.etree import ElementTree as ET

from tests.simulation.picture import draw_picture
from tests.simulation.world import HOUR

STORY = f"""
0 r0 starts
0 r1 starts
1000 r0 leads under epoch 1
{HOUR} ada types maintenance start Reboot at r1
{HOUR + 5} r0 really begins e1/web-0
{HOUR * 2} r0 dies at commit
{HOUR * 2 + 1} r0 really ends e1/web-0 without a word
{HOUR * 2 + 2} r1 leads under epoch 2
{HOUR * 2 + 3} database goes away
{HOUR * 2 + 4} database is back
{HOUR * 3} r1 stands still at begin for 5000 ms
{HOUR * 4} world nothing goes wrong any more
{HOUR * 5} r1 really begins e2/web-1
{HOUR * 6} r1 really ends e2/web-1 done
"""


def test_picture_shows_who_led_what_ran_and_what_went_wrong() -> None:
    drawn = ET.fromstring(draw_picture(3, STORY.strip().splitlines()))  # noqa: S314 - our own

    shapes = [each.get("class") for each in drawn.iter() if each.get("class")]
    texts = [each.text for each in drawn.iter("{http://www.w3.org/2000/svg}text")]
    legend = 1
    assert shapes.count("leads") == legend + 3
    assert shapes.count("lost") == legend + 1
    assert shapes.count("done") == legend + 1
    assert shapes.count("typed") == legend + 1
    assert shapes.count("fault") == legend + 3
    assert {"database", "r0", "r1", "operator", "6 h"} <= {*texts}
