"""Keeps rich out of this process, if it is imported before structlog.

structlog would load it for tracebacks in colour, which cost as much memory as everything of ours.
"""

import sys

sys.modules["rich"] = None  # type: ignore[assignment]
