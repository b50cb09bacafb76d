"""Who is asked between two steps of a Maintenance."""

from typing import Protocol

from forewarn.domain.gate import Answer, Question


class Gates(Protocol):
    """Every gate that the server knows, by name.

    Asking never takes long: the question is put by somebody else, and until the answer is there it
    is ASKING. Whoever asks is woken when it is. Under virtual time it is waited for.
    """

    def ask(self, question: Question) -> Answer:
        """Return the answer so far, and have the question put if it is time to."""
