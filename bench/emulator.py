"""How soon an emulator is there, and how long a year takes in it."""

import statistics
import time
from datetime import UTC, datetime, timedelta
from typing import Any, Final

from smoke import new_parser, run, sized

from forewarn.domain.maintenance import MaintenanceOrder
from forewarn.files.fleet import read_fleet
from forewarn.operations.maintenances import start_maintenance
from forewarn.protocol.vocabulary import EventType
from forewarn.testing import Emulator
from forewarn.testing.engine import start_engine
from forewarn.testing.handles import EmulatedClock

EMULATORS: Final = sized(200, smoke=3)
READY_TARGET: Final = 0.05
SETS: Final = 5
VMS: Final = sized(100, smoke=10)
WEEKS: Final = sized(52, smoke=1)
YEAR_TARGET: Final = 10.0


def measure_start() -> float:
    """Return the seconds from nothing to an emulator with a virtual machine that can poll."""
    began = time.perf_counter()
    with Emulator() as emulator:
        emulator.vm("web-0")
        return time.perf_counter() - began


def describe_fleet() -> dict[str, Any]:
    """Return a hundred virtual machines in five availability sets of five update domains."""
    names = [f"set-{number}" for number in range(SETS)]
    return {
        "availability_set": [{"name": name} for name in names],
        "virtual_machine": [
            {"name": f"vm-{number}", "availability_set": names[number % SETS]}
            for number in range(VMS)
        ],
    }


def live_through_a_year() -> tuple[float, int]:
    """Return the seconds that a year of weekly roll-outs takes, and how many events it had."""
    order = MaintenanceOrder(
        event_type=EventType.FREEZE, scopes=tuple(f"set-{number}" for number in range(SETS))
    )
    start = datetime(2027, 1, 4, tzinfo=UTC)
    engine = start_engine({"executor": "simulated"}, read_fleet(describe_fleet()), start)
    began = time.perf_counter()
    for _ in range(WEEKS):
        engine.write(lambda tx, context: start_maintenance(tx, context, order))
        EmulatedClock(engine).advance(timedelta(weeks=1))
    taken = time.perf_counter() - began
    events = engine.read(lambda reading: reading.events(limit=1_000_000))
    engine.close()
    return taken, sum(event.outcome == "succeeded" for event in events)


def main() -> None:
    """Print the figures beside their targets."""
    new_parser(__doc__).parse_args()
    first = measure_start()
    starts = sorted(measure_start() for _ in range(EMULATORS))
    print(
        f"emulator ready: median {statistics.median(starts) * 1000:.1f} ms, "
        f"99 % within {starts[EMULATORS * 99 // 100 - 1] * 1000:.1f} ms "
        f"(target {READY_TARGET * 1000:.0f} ms), the first {first * 1000:.0f} ms"
    )
    taken, completed = live_through_a_year()
    print(
        f"a simulated year: {WEEKS} weekly roll-outs over {VMS} VMs, {completed} events completed, "
        f"in {taken:.1f} s (target {YEAR_TARGET:.0f} s)"
    )


if __name__ == "__main__":
    run(main)
