"""The sources of virtual machines, as their file has them, and anew when it is read again."""

from collections.abc import Sequence

import structlog

from forewarn.discovery.configuration import read_sources
from forewarn.discovery.sources import KnownSource
from forewarn.environment import environment_with
from forewarn.files.tables import TablesError
from forewarn.settings import Settings

log = structlog.get_logger()


class ReloadableSources:
    """The sources of the file that *settings* name. A file that becomes wrong changes nothing."""

    def __init__(self, settings: Settings) -> None:
        self._path = settings.discovery_file
        self._current = read_sources(self._path, environment_with({}))

    def __call__(self) -> Sequence[KnownSource]:
        """Return the sources there are now."""
        return self._current

    def reload(self) -> None:
        """Read the file again."""
        try:
            self._current = read_sources(self._path, environment_with({}))
        except TablesError as error:
            log.error("discovery_file_wrong", error=str(error))  # noqa: TRY400 - the sentence says it all
