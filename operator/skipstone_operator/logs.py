"""Structured logs: one JSON object a line on stderr.

Set up once by ``__main__``. Fields given as ``extra`` become members of the object; nothing else formats logs.
"""

from __future__ import annotations

import json
import logging
import sys
from datetime import UTC, datetime
from types import TracebackType
from typing import IO

#: What every LogRecord has; the rest came in as ``extra``.
_STANDARD = frozenset(vars(logging.makeLogRecord({}))) | {"message", "asctime", "taskName"}
MAX_MESSAGE = 8192


class JsonFormatter(logging.Formatter):
    """A LogRecord as one line of JSON: time, level, logger, message, the extra fields, a stack if there is one."""

    def format(self, record: logging.LogRecord) -> str:
        """The line, without its end."""
        fields: dict[str, object] = {
            "time": datetime.fromtimestamp(record.created, UTC).isoformat(timespec="milliseconds"),
            "level": record.levelname.lower(),
            "logger": record.name,
            "message": record.getMessage()[:MAX_MESSAGE],
        }
        fields |= {name: value for name, value in vars(record).items() if name not in _STANDARD | set(fields)}
        if record.exc_info:
            fields["stack"] = self.formatException(record.exc_info)
        return json.dumps(fields, default=str, ensure_ascii=False)


def set_up(level: str, stream: IO[str] | None = None) -> None:
    """Send what is at ``level`` (``debug``, ``info``, …) or above to ``stream``; libraries only from warning on."""
    handler = logging.StreamHandler(stream or sys.stderr)
    handler.setFormatter(JsonFormatter())
    root = logging.getLogger()
    root.handlers[:] = [handler]
    root.setLevel(logging.WARNING)
    logging.getLogger("skipstone_operator").setLevel(level.upper())
    sys.excepthook = log_uncaught


def log_uncaught(kind: type[BaseException], error: BaseException, stack: TracebackType | None) -> None:
    """What ends the process unforeseen is a line of JSON too."""
    logging.getLogger("skipstone_operator").critical("ending: %s", error, exc_info=(kind, error, stack))
