"""Structured logs, one line each."""

import logging
import sys

import structlog
from structlog.typing import FilteringBoundLogger

from forewarn.operations.access import redact
from forewarn.protocol.controls import without_controls


def configure_logging(log_format: str, level: str) -> None:
    """Write logs of *level* and above to standard error, as lines for people or as JSON."""
    lowest = _number(level)
    renderer: structlog.typing.Processor = structlog.processors.JSONRenderer()
    if log_format == "console":
        renderer = structlog.dev.ConsoleRenderer(colors=sys.stderr.isatty())
    shared: list[structlog.typing.Processor] = [
        structlog.processors.add_log_level,
        structlog.processors.TimeStamper(fmt="iso", utc=True),
        structlog.processors.format_exc_info,
        _without_controls,
    ]
    structlog.configure(
        processors=[*shared, renderer, _redact],
        wrapper_class=structlog.make_filtering_bound_logger(lowest),
        logger_factory=structlog.PrintLoggerFactory(sys.stderr),
    )
    # What libraries have to say comes out in the same form.
    handler = logging.StreamHandler(sys.stderr)
    handler.setFormatter(
        structlog.stdlib.ProcessorFormatter(
            foreign_pre_chain=shared,
            processors=[
                structlog.stdlib.ProcessorFormatter.remove_processors_meta,
                renderer,
                _redact,
            ],
        )
    )
    logging.basicConfig(level=max(lowest, logging.WARNING), handlers=[handler], force=True)


def logger_above(level: str) -> FilteringBoundLogger:
    """Return a logger that writes lines of *level* and above, however logging is configured.

    A server inside somebody's tests shares a process, and the configuration, with their program.
    """
    above: FilteringBoundLogger = structlog.wrap_logger(
        None, wrapper_class=structlog.make_filtering_bound_logger(_number(level))
    )
    return above


def _number(level: str) -> int:
    return logging.getLevelNamesMapping()[level.upper()]


def _without_controls(
    _logger: object, _method: str, line: structlog.typing.EventDict
) -> structlog.typing.EventDict:
    return {
        key: without_controls(value) if isinstance(value, str) else value
        for key, value in line.items()
    }


def _redact(_logger: object, _method: str, line: object) -> str:
    return redact(str(line))
