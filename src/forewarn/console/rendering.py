"""Templates and what they can do with moments, lengths of time, ids and the words of others."""

import re
from collections.abc import Mapping
from datetime import UTC, datetime, timedelta
from functools import cache
from typing import Any, Final

from jinja2 import Environment, PackageLoader, StrictUndefined
from markupsafe import Markup, escape

from forewarn.console.assets import assets
from forewarn.console.gantt import tone_of
from forewarn.domain.phrases import count_of

_HIDDEN: Final = re.compile(
    "[\x00-\x08\x0b-\x1f\x7f-\x9f\u200b-\u200f\u202a-\u202e\u2060-\u206f\ufeff]"
)
"""What cannot be seen, or changes how others are seen: controls and marks of direction."""

_GUID: Final = "[0-9A-F]{8}-(?:[0-9A-F]{4}-){3}[0-9A-F]{12}"
_NAMED: Final = re.compile(
    rf"\b(?:(?P<id>{_GUID}|{_GUID.replace('A-F', 'a-f')})"
    r"|(?P<at>[0-9]{4}-[01][0-9]-[0-3][0-9] [0-2][0-9]:[0-5][0-9]:[0-5][0-9]) GMT)\b"
)
"""What sentences name by id, events in capitals and Maintenances not, and moments in them."""

NONE: Final = "\N{EN DASH}"
"""What stands where there is nothing to show."""


def render(template: str, values: Mapping[str, object]) -> str:
    """Return *template* filled with *values*."""
    return _environment().get_template(template).render(values)


def visible(value: Any) -> Any:
    """Return *value*; in texts, with what cannot be seen as a box."""
    if isinstance(value, Markup) or not isinstance(value, str):
        return value
    return _HIDDEN.sub("\N{WHITE VERTICAL RECTANGLE}", value)


def moment(at: datetime | None, style: str = "time") -> Markup:
    """Return *at* as the browser shows it: as a *time*, a *date* with it, *ago*, or a *countdown*.

    Without scripts it is the time in GMT.
    """
    if at is None:
        return Markup('<span class="none">{}</span>').format(NONE)
    utc = at.astimezone(UTC)
    shown = f"{utc:%H:%M:%S}" if style == "time" else f"{utc:%Y-%m-%d %H:%M:%S}"
    return Markup('<time datetime="{}" data-as="{}" title="{} GMT">{}</time>').format(
        f"{utc:%Y-%m-%dT%H:%M:%SZ}", style, f"{utc:%Y-%m-%d %H:%M:%S}", shown
    )


def span(length: timedelta | float | None) -> str:
    """Return how long *length* is, in its two largest units."""
    if length is None:
        return NONE
    seconds = round(length.total_seconds() if isinstance(length, timedelta) else length)
    sign, seconds = ("\N{MINUS SIGN}" if seconds < 0 else ""), abs(seconds)
    units = (("d", 86400), ("h", 3600), ("min", 60), ("s", 1))
    parts: list[str] = []
    for unit, size in units:
        number, seconds = divmod(seconds, size)
        if number or (parts and seconds and unit != "s"):
            parts.append(f"{number} {unit}")
        if len(parts) == 2:
            break
    return sign + (" ".join(parts) or "0 s")


def said(sentence: str) -> Markup:
    """Return a *sentence* of the rules with links to what it names by id, and times as `moment`."""
    shown = visible(sentence)
    parts: list[Markup] = []
    done = 0
    for match in _NAMED.finditer(shown):
        parts += [escape(shown[done : match.start()]), _name(match)]
        done = match.end()
    return Markup("<bdi>{}</bdi>").format(Markup().join([*parts, escape(shown[done:])]))


def _name(match: re.Match[str]) -> Markup:
    key = match["id"]
    if key is None:
        try:
            return moment(datetime.fromisoformat(match["at"]).replace(tzinfo=UTC), "when")
        except ValueError:  # somebody's own words
            return escape(match[0])
    kind = "events" if key.isupper() else "maintenances"
    return Markup('<a class="id" href="/{}/{}">{}</a>').format(kind, key, short(key))


def short(text: str) -> str:
    """Return the first of an id, which is enough to find it again."""
    return text[:8]


@cache
def _environment() -> Environment:
    environment = Environment(
        loader=PackageLoader("forewarn.console"),
        autoescape=True,
        undefined=StrictUndefined,
        finalize=visible,
        trim_blocks=True,
        lstrip_blocks=True,
        auto_reload=False,
    )
    environment.filters.update(
        moment=moment, span=span, short=short, said=said, number="{:,}".format, tone=tone_of
    )
    environment.globals["asset"] = lambda name: assets()[name].path
    environment.globals["count_of"] = count_of
    return environment
