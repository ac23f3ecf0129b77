"""What PySpark knows of a failure: its JVM's process, and the stack that an error brought from the JVM.

Nothing here imports PySpark: runs that do without it name their causes too.
"""

from __future__ import annotations

import sys
from subprocess import Popen


def launched_jvm() -> Popen[bytes] | None:
    """The process of the JVM that PySpark started; None when PySpark took one that was there, or was not used."""
    context = sys.modules.get("pyspark.core.context")
    process: Popen[bytes] | None = getattr(
        getattr(getattr(context, "SparkContext", None), "_gateway", None), "proc", None
    )
    return process


def stack_trace(error: BaseException) -> str:
    """The stack of the JVM that an error of PySpark's brought along; empty when it brought none."""
    return str(getattr(error, "_stackTrace", "") or "")
