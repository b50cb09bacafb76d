"""What is simulated under a seed: a fleet, servers, orders, and how often what goes wrong."""

from dataclasses import dataclass, field, replace
from datetime import time, timedelta
from typing import Final

from tests.simulation.checker import Machine, Model
from tests.simulation.world import HOUR, MINUTE, SECOND, Chance, Rates

from forewarn.domain.course import Course
from forewarn.domain.host_work import HostWorkRule
from forewarn.domain.maintenance import MaintenanceOrder
from forewarn.domain.windows import Calendar, Window
from forewarn.protocol.vocabulary import EventType

HOSTS: Final = 12
_CHARACTERS: Final = (
    *("silent", "dead", "approves", "approves late", "approves twice", "for others"),
    *("agent", "agent", "agent"),
)
TYPES: Final = (EventType.REBOOT, EventType.REDEPLOY, EventType.FREEZE)
ALL_DAY: Final = Calendar(
    windows=(Window(days=frozenset(range(7)), opens=time(5), closes=time(23), zone="UTC"),)
)


@dataclass(frozen=True, slots=True, kw_only=True)
class Size:
    """How large it is; a failing seed is tried with less of each."""

    hours: int = 6
    machines: int = 50
    faults: float = 1.0
    orders: int = 4


@dataclass(slots=True, kw_only=True)
class Scenario:
    """Everything about a seed that does not depend on what happens."""

    seed: int
    size: Size
    fleet: str
    model: Model
    servers: int
    rules: tuple[HostWorkRule, ...]
    orders: list[tuple[int, MaintenanceOrder]]
    rates: Rates
    characters: dict[str, str]
    gate_open: float
    faults: dict[str, float] = field(default_factory=dict)


def draw(seed: int, size: Size) -> Scenario:
    """Return the scenario of *seed*."""
    chance = Chance(seed, "scenario")
    fleet, model = _fleet(chance, size.machines)
    scopes = sorted({each.scope for each in model.machines.values()})
    hosts = sorted({each.host for each in model.machines.values()})
    rule = HostWorkRule(
        has_verify=chance.happens(0.7),
        has_return=chance.happens(0.4),
        verify_within=timedelta(minutes=chance.pick((5, 20, 60))),
        verify_every=timedelta(seconds=chance.pick((30, 60, 120))),
    )
    orders = [
        (number * size.hours * HOUR // (size.orders + 3) + chance.below(20 * MINUTE), order)
        for number, order in enumerate(_orders(chance, scopes, hosts, size.orders))
    ]
    calm = 0.15 if chance.happens(0.15) else 1.0

    def rate(*choices: float) -> float:
        return chance.pick(choices) * calm * size.faults

    return Scenario(
        seed=seed,
        size=size,
        fleet=fleet,
        model=model,
        servers=chance.between(3, 5),
        rules=(rule,) if chance.happens(0.8) else (),
        orders=orders,
        rates=Rates(
            crash=rate(0, 0.0003, 0.001, 0.003),
            pause=rate(0, 0.0003, 0.001, 0.003),
            longest_pause=chance.pick((5, 20, 60, 400)) * SECOND,
            uncertain=rate(0, 0.001, 0.005, 0.02),
            lost_notification=rate(0, 0.05, 0.3),
            doubled_notification=rate(0, 0.05, 0.2),
        ),
        characters={name: _character(chance) for name in model.machines},
        gate_open=chance.pick((1.0, 0.8, 0.5)),
        faults={
            "power": rate(0, 0.5, 1, 2),
            "cut": rate(0, 0.5, 1, 2),
            "away": rate(0, 0.3, 1),
            "clock": rate(0, 0.5, 1),
            "aimed": rate(0, 1, 3, 6),
            "disk": rate(0, 0, 0.5),
            "failure": rate(0, 0.05, 0.2),
            "lost": rate(0, 0.02, 0.1),
            "hang": rate(0, 0.05, 0.1),
            "nonsense": rate(0, 0, 0.05),
            "late": rate(0, 0.1, 0.5),
            "agent": rate(0, 0.005, 0.03),
            "feed": rate(0, 0.01, 0.05),
            "verbs": chance.pick((0, 2, 6)) * size.faults,
        },
    )


def _character(chance: Chance) -> str:
    return chance.pick(_CHARACTERS)


def _fleet(chance: Chance, most: int) -> tuple[str, Model]:
    """Return a fleet file, in which no host carries two update domains of a set."""
    lines: list[str] = []
    machines: dict[str, Machine] = {}
    approval: dict[str, str] = {}
    number = 0
    while len(machines) < most:
        number += 1
        kind = chance.pick(("availability_set", "availability_set", "scale_set", "alone"))
        size = min(chance.between(2, 9), most - len(machines))
        policy = chance.pick(("any", "any", "all", "leader"))
        name, domains = f"set{number}", chance.between(2, 5)
        if kind == "alone":
            size, domains = 1, 1
        first = chance.below(HOSTS)
        scope = f"{kind.replace('_', '-')}/{name}"
        if kind != "alone":
            lines += [f"[[{kind}]]", f'name = "{name}"', f"update_domains = {domains}"]
            lines += [f'approval = "{policy}"']
        for each in range(size):
            vm = f"{name}_{each}" if kind == "scale_set" else f"{name}-{each}"
            domain = each % domains
            # Hosts h with h % domains == domain carry it.
            host = (first + domain + domains * chance.below(HOSTS // domains)) % HOSTS
            host = _fitting(host, first, domain, domains)
            lines += ["[[virtual_machine]]", f'name = "{vm}"', f'host = "h{host:02}"']
            if kind == "alone":
                scope, policy = f"virtual-machine/{vm}", "any"
            else:
                lines += [f'{kind} = "{name}"', f"update_domain = {domain}"]
            machines[vm] = Machine(name=vm, scope=scope, domain=domain, host=f"h{host:02}")
            approval[scope] = policy
    return "\n".join(lines) + "\n", Model(machines=machines, approval=approval)


def _fitting(host: int, first: int, domain: int, domains: int) -> int:
    """Return *host*, or the next that carries this update domain only."""
    place = (host - first) % HOSTS
    usable = HOSTS - HOSTS % domains
    place = place % usable
    return (first + place - place % domains + domain) % HOSTS


def _orders(
    chance: Chance, scopes: list[str], hosts: list[str], number: int
) -> list[MaintenanceOrder]:
    orders = []
    for index in range(max(number, 3)):
        course = Course(
            at_once=chance.pick((None, None, 1, 2, 4)),
            min_available=chance.pick((0, 0, 20, 50)),
            soak=timedelta(minutes=chance.pick((0, 0, 0, 5, 15))),
            hold_all=chance.happens(0.5),
            in_order=chance.happens(0.3),
            gates=chance.pick(((), (), ("smoke",))),
            gate_patience=timedelta(minutes=chance.pick((10, 60))),
            calendar=chance.pick((Calendar(), ALL_DAY)),
            notice_outside=chance.happens(0.3),
        )
        by_host = index % 2 == 1
        chosen = tuple(chance.some(hosts if by_host else scopes, chance.between(2, 5)))
        canary = chosen[:1] if chance.happens(0.4 if by_host else 0.3) else ()
        orders.append(
            MaintenanceOrder(
                event_type=chance.pick(TYPES),
                hosts=chosen if by_host else (),
                scopes=() if by_host else chosen,
                course=replace(course, canary=canary),
            )
        )
    return orders
