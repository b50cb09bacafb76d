"""The screen of the demo: one frame that says what is going on, as lines of styled text."""

from datetime import timedelta
from textwrap import wrap
from typing import Final

from rich.text import Text

from forewarn.cli.demonstration.fleet import HOST_LABEL, HOSTS
from forewarn.cli.demonstration.machines import Workload
from forewarn.cli.demonstration.story import HostStep, Scene, explain, headline, introduce, seconds
from forewarn.domain.event import Outcome
from forewarn.domain.names import HostName
from forewarn.protocol.controls import printable

COMMAND: Final = f"forewarn maintenance start --type Freeze --host-label {'='.join(HOST_LABEL)}"
_SIGNS: Final = "●?↓✓■!"
_STYLES: Final = ("green", "bold magenta", "yellow", "bold green", "bold cyan", "bold red")
"""Those of each DemoState."""
_TO_COME, _NOTICE, _UPDATE = ("░", "dim"), ("▒", "yellow"), ("█", "cyan")
_DONE, _FAILED = ("█", "green"), ("█", "red")
_NOTICE_CELLS, _CELLS = 8, 12
_LEGEND: Final = (
    "[yellow]▒ notice[/] [cyan]█ update[/] [green]● serving[/] [yellow]↓ draining[/] "
    "[green]✓ approved[/] [magenta]? silent[/] [cyan]■ frozen[/] [red]! offline[/]"
)
_PANE_LINES: Final = 7
_TELLING: Final = r'"(EventStatus|NotBefore)":"[^"]*"'


def draw(scene: Scene, width: int, height: int) -> list[Text]:
    """Return the frame, at most *height* lines; the end of the story fills what is free."""
    lines = [
        Text("Web console (the link signs in one browser; Ctrl-C ends the demo):", "dim"),
        Text(scene.link, "bold cyan"),
        Text(headline(scene).ljust(width), "bold reverse"),
        Text(f"$ {COMMAND}" if scene.status else "$", "bold"),
        Text(introduce(scene), "dim"),
        *(_draw_host(host, scene) for host in HOSTS),
        Text.from_markup(_LEGEND),
        Text(explain(scene), "bold magenta"),
        *map(_draw_workload, scene.workloads),
        *_draw_pane(scene, width),
    ]
    lines += [Text(printable(str(line))) for line in scene.story[len(lines) - height :]]
    for line in lines:
        is_link = line.plain == scene.link  # which must stay whole
        line.no_wrap, line.overflow = not is_link, "fold" if is_link else "ellipsis"
    return lines[:height]


def _draw_host(host: HostName, scene: Scene) -> Text:
    cells, phase = _progress(scene.host_steps.get(host), scene)
    machines = [
        (f"{_SIGNS[each.state]} {each.member.name:9}", _STYLES[each.state])
        for each in scene.machines
        if each.member.host == host
    ]
    bar = [*cells, *[_TO_COME] * (_CELLS - len(cells))]
    return Text.assemble((f"{host} ", "bold"), *bar, f" {phase:16} ", *machines)


def _progress(step: HostStep | None, scene: Scene) -> tuple[list[tuple[str, str]], str]:
    """Return the filled cells of a host's bar, and where the host is."""
    if step is None:
        return [], "waits its turn"
    if step.ended_at:
        if any(event.outcome is not Outcome.SUCCEEDED for event in step.events):
            return [_FAILED] * _CELLS, "failed"
        when = f"{seconds(step.early)} early" if step.early else "at deadline"
        return [_DONE] * _CELLS, f"done {when}"
    if step.first.started_at:
        return [_NOTICE] * _NOTICE_CELLS + [_UPDATE] * 2, "frozen"
    left = max(step.first.not_before - scene.now, timedelta(0))
    passed = 1 - left / (step.first.not_before - step.first.created_at)
    return [_NOTICE] * round(_NOTICE_CELLS * passed), f"{seconds(left)} of notice"


def _draw_workload(workload: Workload) -> Text:
    return Text.assemble(
        (f"{workload.name:5}", "bold"),
        f" {workload.machines[0].member.behaviour:32} {workload.served:5} requests served ",
        (f"{workload.lost:4} lost", "bold red" if workload.lost else "bold green"),
    )


def _draw_pane(scene: Scene, width: int) -> list[Text]:
    """Return what a machine reads, or what to try once the roll-out is over."""
    title = f"── The document {scene.reader.member.name} reads right now "
    document = printable(scene.document).replace(" ", "\xa0").replace(',"', ', "')
    lines = [*wrap(document, width, break_on_hyphens=False), *[""] * _PANE_LINES][:_PANE_LINES]
    if scene.summary and scene.suggestions:
        title, lines = "── Your turn, in another terminal ", list(scene.suggestions)
    shown = [Text(line.replace("\xa0", " ")) for line in lines]
    for line in shown:
        line.highlight_regex(_TELLING, "bold yellow")
    return [Text(title.ljust(width, "─"), "dim"), *shown]
