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

from collections.abc import Sequence
from datetime import datetime, timedelta

from forewarn.domain.wording import say_length
from forewarn.protocol.errors import ForewarnError
from forewarn.protocol.vocabulary import EventId, EventStatus


class DomainError(ForewarnError):
    """A rule refuses what was asked."""


class NotFoundError(DomainError):
    """Nothing has the name or the id that was given."""


class ConflictError(DomainError):
    """What is asked for is not possible as things are now."""


class InvalidError(DomainError):
    """What was given can never be right."""


class TopologyError(InvalidError):
    """The fleet cannot be as declared."""


class InvalidNameError(TopologyError):
    """A name with characters that do not travel."""

    def __init__(self, noun: str, name: str) -> None:
        super().__init__(
            f"{name!r} is not a valid name for a {noun}: use up to 128 letters, digits, '_', '-' "
            "and '.', and begin with a letter, a digit or '_'."
        )
        self.noun = noun
        self.name = name


class NameTakenError(TopologyError):
    """Two things of one name."""

    def __init__(self, noun: str, name: str, advice: str = "") -> None:
        super().__init__(
            f"More than one {noun} is called {name!r}; names are not case-sensitive.{advice}"
        )
        self.noun = noun
        self.name = name


class AddressError(TopologyError):
    """No address, or one that somebody else has."""

    def __init__(self, address: str, vm: str, problem: str) -> None:
        super().__init__(f"The address {address!r} of {vm} {problem}.")
        self.address = address
        self.vm = vm
        self.key = "addresses"


class UnknownScopeError(TopologyError):
    """A set, service or scale set nobody declared."""

    def __init__(self, vm: str, scope: str) -> None:
        super().__init__(f"{vm} belongs to {scope}, which is not declared.")
        self.vm = vm
        self.scope = scope
        self.key = scope.partition("/")[0].replace("-", "_")


class RoleNameError(TopologyError):
    """A virtual machine of a cloud service not named by its role."""

    def __init__(self, vm: str) -> None:
        super().__init__(
            f"{vm} belongs to a cloud service and must be called ROLE_IN_NUMBER, "
            "such as FrontEnd_IN_0."
        )
        self.vm = vm


class DomainOutOfRangeError(TopologyError):
    """An update or fault domain the scope does not have."""

    def __init__(self, vm: str, noun: str, number: int, domains: int) -> None:
        super().__init__(f"{vm} has {noun} {number}, but there are only 0 to {domains - 1}.")
        self.vm = vm
        self.key = noun.replace(" ", "_")
        self.number = number
        self.domains = domains


class ScopeSettingError(TopologyError):
    """A number of domains or a notice out of bounds."""

    def __init__(self, scope: str, setting: str, bounds: str) -> None:
        super().__init__(f"{setting} of {scope} must be {bounds}.")
        self.scope = scope
        self.setting = setting


class UnknownVirtualMachineError(NotFoundError, TopologyError):
    """A virtual machine nobody declared."""

    def __init__(self, vm: str) -> None:
        super().__init__(f"There is no virtual machine called {vm!r}.")
        self.vm = vm


class UnknownHostError(NotFoundError, TopologyError):
    """A host nobody declared and no virtual machine is on."""

    def __init__(self, host: str) -> None:
        super().__init__(f"There is no host called {host!r}.")
        self.host = host


class UnknownEventError(NotFoundError):
    """An event that never existed in this scope."""

    def __init__(self, event_id: EventId) -> None:
        super().__init__(f"There is no event {event_id}.")
        self.event_id = event_id


class IllegalTransitionError(ConflictError):
    """A trigger the event's status does not allow."""

    def __init__(self, event_id: EventId, event_status: EventStatus, trigger: str) -> None:
        super().__init__(f"Cannot {trigger} event {event_id}: it is {event_status}.")
        self.event_id = event_id
        self.event_status = event_status
        self.trigger = trigger


class NoticeTooShortError(InvalidError):
    """A NotBefore closer than the minimum notice."""

    def __init__(self, event_type: str, not_before: datetime, earliest: datetime) -> None:
        super().__init__(
            f"A {event_type} cannot be announced for {not_before:%Y-%m-%d %H:%M:%S} GMT; "
            f"the earliest is {earliest:%Y-%m-%d %H:%M:%S} GMT."
        )
        self.event_type = event_type
        self.not_before = not_before
        self.earliest = earliest


class PostponeRefusedError(ConflictError):
    """A postponement the policy does not allow."""

    def __init__(self, event_id: EventId, problem: str) -> None:
        super().__init__(f"Event {event_id} cannot be postponed: {problem}.")
        self.event_id = event_id
        self.problem = problem


class UserOperationError(ConflictError):
    """A restart or redeploy that has to wait."""

    def __init__(self, message: str, in_flight: Sequence[EventId]) -> None:
        super().__init__(message)
        self.in_flight = tuple(in_flight)


class UserOperationInFlightError(UserOperationError):
    """One is in flight for the same virtual machine."""

    def __init__(self, vm: str, in_flight: Sequence[EventId]) -> None:
        super().__init__(
            f"{vm} already has a user operation in flight: {', '.join(in_flight)}. "
            "Let it end, or cancel it while it is Scheduled.",
            in_flight,
        )
        self.vm = vm


class UserOperationLimitError(UserOperationError):
    """As many are in flight as the server takes."""

    def __init__(self, limit: int, in_flight: Sequence[EventId]) -> None:
        super().__init__(
            f"{len(in_flight)} user operations are in flight and {limit} is the limit: "
            f"{', '.join(in_flight)}. Let one end, or cancel one that is Scheduled.",
            in_flight,
        )
        self.limit = limit


class MaintenanceOverError(ConflictError):
    """A Maintenance that has ended or was aborted."""

    def __init__(self, maintenance_id: str, how: str = "is over; start another one") -> None:
        super().__init__(f"Maintenance {maintenance_id} {how}.")
        self.maintenance_id = maintenance_id


class ScenarioOverError(ConflictError):
    """A run of a scenario that has ended or was stopped."""

    def __init__(self, run_id: str) -> None:
        super().__init__(f"Scenario run {run_id} is over; there is nothing to stop.")
        self.run_id = run_id


class CalendarError(InvalidError):
    """A window or blackout cannot be as it is written."""


class WindowError(CalendarError):
    """A weekly window that is none."""

    def __init__(self, text: str, problem: str) -> None:
        super().__init__(
            f"{text!r} is not a valid window: {problem}. Write something like "
            "'Sat,Sun 22:00-06:00 Europe/Berlin' or 'daily 02:00-04:00 UTC'."
        )
        self.text = text


class BlackoutError(CalendarError):
    """Dates to keep free that are none."""

    def __init__(self, text: str, problem: str) -> None:
        super().__init__(
            f"{text!r} is not a valid blackout: {problem}. Write something like "
            "'2026-12-24..2027-01-02 Europe/Berlin' or '2026-12-31 UTC'."
        )
        self.text = text


class UnknownZoneError(CalendarError):
    """A time zone nobody knows."""

    def __init__(self, zone: str) -> None:
        super().__init__(
            f"There is no time zone called {zone!r}; write one such as Europe/Berlin or UTC, "
            "with the same capital letters."
        )
        self.zone = zone


class PlanError(InvalidError):
    """A Maintenance that cannot be walked."""


class EmptySelectionError(PlanError):
    """Nothing was selected."""

    def __init__(self) -> None:
        super().__init__("The maintenance selects no virtual machine; there is nothing to do.")


class CapacityError(PlanError):
    """A step would leave too few of a scope."""

    def __init__(self, scope: str, update_domain: int, problem: str) -> None:
        super().__init__(
            f"Update domain {update_domain} of {scope} takes too many at once: {problem}. "
            "Lower --min-available, or give the scope more update domains."
        )
        self.scope = scope
        self.update_domain = update_domain


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
            f"A step in {scope} needs {need}, but no opening of the windows is longer than "
            f"{say_length(longest)} ({'; '.join(windows)})."
        )
        self.scope = scope
        self.windows = tuple(windows)


class UnknownCanaryError(PlanError):
    """A canary that is not part of it."""

    def __init__(self, canary: str) -> None:
        super().__init__(f"The canary {canary!r} is not part of the selection.")
        self.canary = canary


class SharedHostError(PlanError):
    """A host carries two update domains of one scope."""

    def __init__(self, host: str, scope: str, vms: Sequence[str]) -> None:
        super().__init__(
            f"Host {host} carries virtual machines of more than one update domain of {scope}: "
            f"{', '.join(vms)}. Move some of them to another host first."
        )
        self.host = host
        self.scope = scope
        self.vms = tuple(vms)
