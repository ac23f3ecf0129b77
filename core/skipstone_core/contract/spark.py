"""How Spark runs for a request: part of what the operator asks of the data plane.

Imported by ``requests`` and by who makes or reads these. Data only.
"""

from __future__ import annotations

from dataclasses import dataclass
from enum import StrEnum


class SmallWork(StrEnum):
    """Where work is done that takes less time than starting a JVM; results are the same."""

    DRIVER = "Driver"
    SPARK = "Spark"


@dataclass(frozen=True, kw_only=True)
class SparkRef:
    """How much a Spark run may use; ``instances`` 0 is local mode in the driver pod.

    ``event_log_seconds``: how long the log of Spark's events is kept; None: there is none.
    """

    instances: int = 0
    executor_cores: int = 1
    driver_cores: int = 1
    small_work: SmallWork = SmallWork.DRIVER
    event_log_seconds: int | None = None
