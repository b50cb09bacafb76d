"""`make simulate`: seeds one after the other, or one again, and what became of them."""

import argparse
import gc
import sys
import time
from collections import Counter
from dataclasses import replace
from pathlib import Path
from typing import Final

from tests.simulation.life import Outcome, simulate
from tests.simulation.picture import draw_picture
from tests.simulation.scenario import Size, draw
from tests.simulation.world import HOUR

_SMALLER: Final = (
    {"faults": 0.0},
    {"faults": 0.1},
    {"faults": 0.4},
    {"machines": 8},
    {"machines": 20},
    {"hours": 2},
    {"hours": 3},
    {"orders": 3},
)


def main() -> int:
    """Simulate what the command line asks for; return the exit code."""
    parser = argparse.ArgumentParser(prog="python -m tests.simulation", description=__doc__)
    parser.add_argument("--seed", type=int, help="only this seed")
    parser.add_argument("--first", type=int, default=1, help="the first of several seeds")
    parser.add_argument("--seeds", type=int, default=20, help="how many seeds (default: 20)")
    parser.add_argument("--seconds", type=float, default=0.0, help="as many seeds as fit into this")
    parser.add_argument("--hours", type=int, default=Size().hours, help="hours with faults")
    parser.add_argument("--machines", type=int, default=Size().machines)
    parser.add_argument("--faults", type=float, default=1.0, help="how often things go wrong")
    parser.add_argument("--orders", type=int, default=Size().orders)
    parser.add_argument("--trace", type=Path, help="write the trace to this file")
    parser.add_argument("--picture", type=Path, help="draw what happened into this SVG file")
    parser.add_argument("--until-failure", action="store_true", help="end with the first failure")
    parser.add_argument("--quiet", action="store_true", help="say nothing of seeds that pass")
    options = parser.parse_args()
    gc.disable()
    size = Size(
        hours=options.hours,
        machines=options.machines,
        faults=options.faults,
        orders=options.orders,
    )
    if options.seed is not None:
        return _one(options.seed, size, trace=options.trace, picture=options.picture)
    return _several(options, size)


def _one(seed: int, size: Size, *, trace: Path | None, picture: Path | None) -> int:
    outcome = simulate(draw(seed, size))
    if trace is not None:
        trace.write_text("\n".join(outcome.lines) + "\n", encoding="utf-8")
    if picture is not None:
        picture.write_text(draw_picture(seed, outcome.lines), encoding="utf-8")
    if outcome.violation:
        print("\n".join(outcome.story))
    print(_say(outcome))
    return 1 if outcome.violation else 0


def _several(options: argparse.Namespace, size: Size) -> int:
    began, cpu = time.monotonic(), time.process_time()
    hours, steps, polls, injected, failed, number = 0, 0, 0, Counter[str](), 0, 0
    fewest = shortest = 10**9
    for seed in range(options.first, options.first + 10**9):
        is_over = (
            time.monotonic() - began >= options.seconds
            if options.seconds
            else number >= options.seeds
        )
        if is_over:
            break
        outcome = simulate(draw(seed, size))
        gc.collect()  # not in between: it would look through all that lives, again and again
        number += 1
        hours += outcome.simulated // HOUR
        shortest = min(shortest, outcome.simulated // HOUR)
        fewest = min(fewest, outcome.orders)
        steps += outcome.steps
        polls += outcome.polls
        injected += outcome.injected
        if outcome.violation and options.until_failure:
            print(f"seed {seed} after {number} seeds: {outcome.violation}")
            return 1
        if outcome.violation:
            failed += 1
            _report(outcome, size)
        elif not options.quiet:
            print(_say(outcome), flush=True)
    each = (time.process_time() - cpu) / max(number, 1)
    for kind, times in sorted(injected.items()):
        print(f"  {times:>8} {kind}")
    print(
        f"{number} seeds, {hours} simulated hours, {injected.total()} faults, {steps} steps, "
        f"{polls} polls; at least {shortest} hours and {fewest} maintenances each; "
        f"{each:.2f} s CPU per seed, {failed} failed"
    )
    return 1 if failed else 0


def _report(outcome: Outcome, size: Size) -> None:
    smaller, found = shrink(outcome, size)
    print(f"seed {outcome.seed}: {outcome.violation}")
    print("\n".join(found.story))
    print(
        f"seed {outcome.seed}: {found.violation}\nReplay it with: {command(found.seed, smaller)}\n"
    )
    sys.stdout.flush()


def shrink(outcome: Outcome, size: Size) -> tuple[Size, Outcome]:
    """Return the smallest size at which the seed still fails, and how."""
    found = outcome
    for change in _SMALLER:
        smaller = replace(
            size,
            **{name: min(value, getattr(size, name)) for name, value in change.items()},
        )
        if smaller == size:
            continue
        tried = simulate(draw(outcome.seed, smaller))
        if tried.violation:
            size, found = smaller, tried
    return size, found


def command(seed: int, size: Size) -> str:
    """Return what to type to see a seed again."""
    usual, words = Size(), [f"python -m tests.simulation --seed {seed}"]
    words += [
        f"--{name} {getattr(size, name)}"
        for name in ("hours", "machines", "faults", "orders")
        if getattr(size, name) != getattr(usual, name)
    ]
    return " ".join(words)


def _say(outcome: Outcome) -> str:
    said = outcome.violation or "passed"
    return (
        f"seed {outcome.seed}: {outcome.simulated // HOUR} h, {outcome.orders} maintenances, "
        f"{outcome.injected.total()} faults, {outcome.steps} steps, {outcome.polls} polls: {said}"
    )


if __name__ == "__main__":
    sys.exit(main())
