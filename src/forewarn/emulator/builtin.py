"""The scenarios that come with the server, each in a file of its name."""

from collections.abc import Mapping
from functools import cache
from importlib.resources import files
from types import MappingProxyType

from forewarn.domain.scenario import Scenario
from forewarn.files.scenario import read_scenario


@cache
def built_in_scenarios() -> Mapping[str, Scenario]:
    """Return every built-in scenario by its name, in alphabetical order."""
    folder = files("forewarn.emulator").joinpath("scenarios")
    texts = [file.read_text(encoding="utf-8") for file in folder.iterdir()]
    scenarios = sorted(map(read_scenario, texts), key=lambda scenario: scenario.name)
    return MappingProxyType({scenario.name: scenario for scenario in scenarios})
