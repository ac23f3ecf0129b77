"""The one place that decides what becomes of a step that fails: it costs time, never rows and never the query.

Used by ``optimizer`` for each rule, and by rules for what they do to one relation of several. Nothing else in this
package catches what it does not expect.
"""

from __future__ import annotations

import logging
from collections.abc import Callable
from typing import TypeVar

from py4j.protocol import Py4JJavaError

logger = logging.getLogger("skipstone.query")

_Result = TypeVar("_Result")


def or_else(
    work: Callable[[], _Result], otherwise: Callable[[str], _Result], consequence: str, level: int = logging.WARNING
) -> _Result:
    """Return the result of ``work``; if it fails, that of ``otherwise`` for the first line of the error.

    ``consequence``: what follows from that, for the log, which gets it with the error at ``level``.
    """
    try:
        return work()
    except Exception as error:  # noqa: BLE001 - there is a plainer way, and the query can run as Spark runs it
        text = first_line(error)
        logger.log(level, "%s: %s", consequence, text)
        return otherwise(text)


def first_line(error: Exception) -> str:
    """Return the message of an error, without stack traces of the JVM."""
    text = error.java_exception.toString() if isinstance(error, Py4JJavaError) else error
    return next((line for line in str(text).splitlines() if line.strip()), type(error).__name__)
