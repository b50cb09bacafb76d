"""What a page is asked, what it answers, and how it says where it is."""

from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from datetime import datetime
from typing import Final, TypeAlias, TypeVar
from urllib.parse import parse_qs, urlencode

from forewarn.desk.caller import Caller
from forewarn.domain.errors import InvalidError
from forewarn.domain.roles import Role
from forewarn.ports.store import Reading

T = TypeVar("T")

LONGEST_TEXT: Final = 4096
"""As in requests of the control API."""


class FormError(InvalidError):
    """A form that was not filled in as it has to be; the message says what to change."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Form:
    """What somebody filled in, or what the query of an address says."""

    fields: Mapping[str, list[str]] = field(default_factory=dict)

    def text(self, name: str, default: str = "") -> str:
        """Return what was said under *name*, without the spaces around it."""
        return self.fields.get(name, [default])[-1].strip()

    def texts(self, name: str) -> tuple[str, ...]:
        """Return everything that was said under *name*."""
        return tuple(text for text in map(str.strip, self.fields.get(name, ())) if text)

    def lines(self, name: str) -> tuple[str, ...]:
        """Return the lines, or words between commas, of what was said under *name*."""
        said = self.text(name).replace(",", "\n").splitlines()
        return tuple(line for line in map(str.strip, said) if line)

    def number(
        self, name: str, default: int, *, least: int = 0, most: int = 10**9, label: str = ""
    ) -> int:
        """Return the number under *name*, which messages call *label*; refuse other text."""
        said = self.text(name)
        if not said:
            return default
        is_number = said.isascii() and said.isdigit() and len(said) <= 12
        if not is_number or not least <= int(said) <= most:
            at_least = f" of at least {least}" if least else ""
            raise FormError(f"{label or name}: enter a whole number{at_least}.")
        return int(said)

    def reason(self) -> str:
        """Return why something is done, or refuse a text that is too long."""
        reason = self.text("reason")
        if len(reason) > LONGEST_TEXT:
            raise FormError(f"Reason: enter at most {LONGEST_TEXT} characters.")
        return reason

    def is_set(self, name: str) -> bool:
        """Tell whether the box *name* is ticked."""
        return self.text(name) not in {"", "0", "off", "false"}


def read_form(text: str) -> Form:
    """Return the fields of a form or a query, as browsers encode them."""
    try:
        return Form(fields=parse_qs(text, keep_blank_values=True, max_num_fields=1000))
    except ValueError:
        raise FormError("The form has more than 1000 fields.") from None


def address(path: str, chosen: Mapping[str, object], usual: Mapping[str, object]) -> str:
    """Return the address of the page at *path* that shows what is *chosen*, without the *usual*."""
    query = {name: value for name, value in chosen.items() if value != usual[name]}
    return f"{path}?{urlencode(query)}" if query else path


@dataclass(frozen=True, slots=True, kw_only=True)
class Visit:
    """One request of somebody who is signed in: to which page, with what."""

    caller: Caller
    url: str
    path_values: Mapping[str, str] = field(default_factory=dict)
    query: Form = field(default_factory=Form)
    form: Form = field(default_factory=Form)

    @property
    def now(self) -> datetime:
        """Maintenance time."""
        return self.caller.services.clock.now()

    def may(self, role: Role) -> bool:
        """Tell whether the visitor has *role* or a higher one."""
        return self.caller.principal.role.includes(role)

    def read(self, look: Callable[[Reading], T]) -> T:
        """Return what *look* sees, as far as the visitor may see it."""
        return self.caller.read(look)


@dataclass(frozen=True, slots=True, kw_only=True)
class Page:
    """What a page shows: *template* filled with *values*, under *title*.

    One that is live asks for itself anew whenever something has changed.
    """

    title: str
    template: str
    values: Mapping[str, object] = field(default_factory=dict)
    is_live: bool = True


@dataclass(frozen=True, slots=True, kw_only=True)
class Fragment:
    """A part of a page, which a form asks for."""

    template: str
    values: Mapping[str, object] = field(default_factory=dict)


@dataclass(frozen=True, slots=True, kw_only=True)
class Done:
    """What has been done, in a sentence; the browser goes on to *location*, or stays."""

    message: str
    location: str = ""


@dataclass(frozen=True, slots=True, kw_only=True)
class PageRoute:
    """A page at *path*, for those who have *role*."""

    path: str
    show: Callable[[Visit], Page]
    role: Role = Role.VIEWER


@dataclass(frozen=True, slots=True, kw_only=True)
class ActionRoute:
    """Something to do at *path*, for those who have *role*.

    *name* is what the audit calls it if it is refused, and *subject* the part of the path that it
    is done to. Something that only looks, as a plan does, has no name. What *is_slow* waits
    for others outside.
    """

    path: str
    act: Callable[[Visit], Done | Fragment]
    role: Role = Role.OPERATOR
    name: str = ""
    subject: str = ""
    is_slow: bool = False


ConsoleRoute: TypeAlias = PageRoute | ActionRoute
