"""What the rules refuse. Every message is a sentence an operator can act on.

DomainError
├ NotFoundError                   nothing has the name or the id that was given
│ ├ UnknownVirtualMachineError    a virtual machine nobody declared
│ ├ UnknownHostError              a host nobody declared and no virtual machine is on
│ └ UnknownEventError             an event that never existed in this scope
├ ConflictError                   what is asked for is not possible as things are now
│ ├ IllegalTransitionError        a trigger the event's status does not allow
│ ├ PostponeRefusedError          a postponement the policy does not allow
│ ├ UserOperationError            a restart or redeploy that has to wait
│ │ ├ UserOperationInFlightError  one is in flight for the same virtual machine
│ │ └ UserOperationLimitError     as many are in flight as the server takes
│ ├ MaintenanceOverError          a Maintenance that has ended or was aborted
│ └ ScenarioOverError             a run of a scenario that has ended or was stopped
└ InvalidError                    what was given can never be right
  ├ TopologyError                 the fleet cannot be as declared
  │ ├ InvalidNameError            a name with characters that do not travel
  │ ├ NameTakenError              two things of one name
  │ ├ AddressError                no address, or one that somebody else has
  │ ├ UnknownScopeError           a set, service or scale set nobody declared
  │ ├ RoleNameError               a virtual machine of a cloud service not named by its role
  │ ├ DomainOutOfRangeError       an update or fault domain the scope does not have
  │ └ ScopeSettingError           a number of domains or a notice out of bounds
  ├ NoticeTooShortError           a NotBefore closer than the minimum notice
  ├ CalendarError                 a window or blackout that cannot be as it is written
  │ ├ WindowError                 a weekly window that is none
  │ ├ BlackoutError               dates to keep free that are none
  │ └ UnknownZoneError            a time zone nobody knows
  └ PlanError                     a Maintenance that cannot be walked
    ├ EmptySelectionError         nothing was selected
    ├ CapacityError               a step would leave too few of a scope
    ├ WindowTooShortError         a step that fits into no window
    ├ UnknownCanaryError          a canary that is not part of it
    └ SharedHostError             a host carries two update domains of one scope

The first two are errors of the topology, too: a fleet may name what is not declared.
"""

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from datetime import datetime, timedelta
from typing import ClassVar, TypeVar, dataclass_transform

from forewarn.domain.phrases import say_length
from forewarn.protocol.errors import ForewarnError
from forewarn.protocol.vocabulary import EventId, EventStatus


class DomainError(ForewarnError):
    """A rule refuses what was asked."""


E = TypeVar("E", bound=ForewarnError)


@dataclass_transform(eq_default=False)
def says(sentence: str) -> Callable[[type[E]], type[E]]:
    """Have an error take its fields as arguments, and fill them into *sentence*."""

    def make(error: type[E]) -> type[E]:
        error.template = sentence
        return dataclass(eq=False, repr=False)(error)

    return make


class NotFoundError(DomainError):
    """Nothing has the name or the id that was given."""


class ConflictError(DomainError):
    """What is asked for is not possible as things are now."""


class InvalidError(DomainError):
    """What was given can never be right."""


class TopologyError(InvalidError):
    """The fleet cannot be as declared."""


@says(
    "{name!r} is not a valid name for a {noun}: use up to 128 letters, digits, '_', '-' "
    "and '.', and begin with a letter, a digit or '_'."
)
class InvalidNameError(TopologyError):
    """A name with characters that do not travel."""

    noun: str
    name: str


@says("More than one {noun} is called {name!r}; names are not case-sensitive.{advice}")
class NameTakenError(TopologyError):
    """Two things of one name."""

    noun: str
    name: str
    advice: str = ""


@says("The address {address!r} of {vm} {problem}.")
class AddressError(TopologyError):
    """No address, or one that somebody else has."""

    address: str
    vm: str
    problem: str
    key: ClassVar = "addresses"


class UnknownScopeError(TopologyError):
    """A set, service or scale set nobody declared."""

    def __init__(self, vm: str, scope: str) -> None:
        super().__init__(f"{vm} belongs to {scope}, which is not declared.")
        self.vm = vm
        self.scope = scope
        self.key = scope.partition("/")[0].replace("-", "_")


@says("{vm} belongs to a cloud service and must be called ROLE_IN_NUMBER, such as FrontEnd_IN_0.")
class RoleNameError(TopologyError):
    """A virtual machine of a cloud service not named by its role."""

    vm: str


class DomainOutOfRangeError(TopologyError):
    """An update or fault domain the scope does not have."""

    def __init__(self, vm: str, noun: str, number: int, domains: int) -> None:
        super().__init__(f"{vm} has {noun} {number}; valid numbers are 0 to {domains - 1}.")
        self.vm = vm
        self.key = noun.replace(" ", "_")
        self.number = number
        self.domains = domains


@says("{setting} of {scope} must be {bounds}.")
class ScopeSettingError(TopologyError):
    """A number of domains or a notice out of bounds."""

    scope: str
    setting: str
    bounds: str


@says("Unknown virtual machine {vm!r}.")
class UnknownVirtualMachineError(NotFoundError, TopologyError):
    """A virtual machine nobody declared."""

    vm: str


@says("Unknown host {host!r}.")
class UnknownHostError(NotFoundError, TopologyError):
    """A host nobody declared and no virtual machine is on."""

    host: str


@says("Unknown event {event_id}.")
class UnknownEventError(NotFoundError):
    """An event that never existed in this scope."""

    event_id: EventId


@says("Cannot {trigger} event {event_id}: it is {event_status}.")
class IllegalTransitionError(ConflictError):
    """A trigger the event's status does not allow."""

    event_id: EventId
    event_status: EventStatus
    trigger: str


@says(
    "NotBefore {not_before:%Y-%m-%d %H:%M:%S} GMT is too early for a {event_type}; the earliest "
    "is {earliest:%Y-%m-%d %H:%M:%S} GMT."
)
class NoticeTooShortError(InvalidError):
    """A NotBefore closer than the minimum notice."""

    event_type: str
    not_before: datetime
    earliest: datetime


@says("Event {event_id} cannot be postponed: {problem}.")
class PostponeRefusedError(ConflictError):
    """A postponement the policy does not allow."""

    event_id: EventId
    problem: str


class UserOperationError(ConflictError):
    """A restart or redeploy that has to wait."""


@says(
    "{vm} already has a user operation in flight: {in_flight}. "
    "Wait until it ends, or cancel it while it is Scheduled."
)
class UserOperationInFlightError(UserOperationError):
    """One is in flight for the same virtual machine."""

    vm: str
    in_flight: tuple[EventId, ...]


class UserOperationLimitError(UserOperationError):
    """As many are in flight as the server takes."""

    def __init__(self, limit: int, in_flight: Sequence[EventId]) -> None:
        super().__init__(
            f"{len(in_flight)} user operations are in flight, and the limit is {limit}: "
            f"{', '.join(in_flight)}. Wait until one ends, or cancel one that is Scheduled."
        )
        self.limit = limit
        self.in_flight = tuple(in_flight)


@says("Maintenance {maintenance_id} {how}.")
class MaintenanceOverError(ConflictError):
    """A Maintenance that has ended or was aborted."""

    maintenance_id: str
    how: str = "has ended; start another one"


@says("Scenario run {run_id} has already ended.")
class ScenarioOverError(ConflictError):
    """A run of a scenario that has ended or was stopped."""

    run_id: str


class CalendarError(InvalidError):
    """A window or blackout cannot be as it is written."""


@says(
    "{text!r} is not a valid window: {problem}. Use, for example, 'Sat,Sun 22:00-06:00 "
    "Europe/Berlin' or 'daily 02:00-04:00 UTC'."
)
class WindowError(CalendarError):
    """A weekly window that is none."""

    text: str
    problem: str


@says(
    "{text!r} is not a valid blackout: {problem}. Use, for example, '2026-12-24..2027-01-02 "
    "Europe/Berlin' or '2026-12-31 UTC'."
)
class BlackoutError(CalendarError):
    """Dates to keep free that are none."""

    text: str
    problem: str


@says(
    "Unknown time zone {zone!r}. Use a name such as Europe/Berlin or UTC; names are case-sensitive."
)
class UnknownZoneError(CalendarError):
    """A time zone nobody knows."""

    zone: str


class PlanError(InvalidError):
    """A Maintenance that cannot be walked."""


@says(
    "The maintenance selects no virtual machine. Select a scope, virtual machine, host or label "
    "that exists."
)
class EmptySelectionError(PlanError):
    """Nothing was selected."""


@says(
    "Update domain {update_domain} of {scope} takes too many virtual machines at once: {problem}. "
    "Lower `min_available`, or give the scope more update domains."
)
class CapacityError(PlanError):
    """A step would leave too few of a scope."""

    scope: str
    update_domain: int
    problem: str


class WindowTooShortError(PlanError):
    """A step that fits into no window."""

    def __init__(
        self,
        scope: str,
        *,
        notice: timedelta | None,
        impact: timedelta,
        longest: timedelta,
        windows: Sequence[str],
    ) -> None:
        need = f"{say_length(impact)} for its impact"
        if notice is not None:
            need = (
                f"{say_length(notice + impact)} ({say_length(notice)} notice "
                f"and {say_length(impact)} impact)"
            )
        super().__init__(
            f"A step in {scope} needs {need}, but the windows are open for at most "
            f"{say_length(longest)} ({'; '.join(windows)})."
        )
        self.scope = scope
        self.windows = tuple(windows)


@says("The canary {canary!r} is not among the selected scopes or hosts.")
class UnknownCanaryError(PlanError):
    """A canary that is not part of it."""

    canary: str


@says(
    "Host {host} carries virtual machines of more than one update domain of {scope}: "
    "{vms}. Move some of them to another host first."
)
class SharedHostError(PlanError):
    """A host carries two update domains of one scope."""

    host: str
    scope: str
    vms: tuple[str, ...]
