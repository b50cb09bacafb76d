"""What can go wrong with the agent itself.

ForewarnError
└ AgentError            the root of every error of this package
  ├ SettingsError       the configuration cannot be used
  └ StateError          what is kept on disk cannot be used, or another agent is using it
    └ BrokenStateError  the agent did not write it like that
"""

from forewarn.protocol.errors import ForewarnError


class AgentError(ForewarnError):
    """The root of every error of this package."""


class AgentSettingsError(AgentError):
    """The configuration cannot be used; names the file, the key and what to do."""

    def __init__(self, file: str, key: str, flaw: str) -> None:
        super().__init__(f"{file}: {key}: {flaw}" if key else f"{file}: {flaw}")
        self.file = file
        self.key = key


class StateError(AgentError):
    """What is kept on disk cannot be used, or another agent is using it."""


class BrokenStateError(StateError):
    """What is kept on disk is not as an agent writes it."""
