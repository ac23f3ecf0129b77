"""Looks into a run's request before anything else is imported.

Called first of all by the scripts of runs. Only the standard library may be imported here. Judges nothing: a request
that cannot be read is told by the run.
"""

from __future__ import annotations

import json
from collections.abc import Mapping
from pathlib import Path

REQUEST_VARIABLE = "SKIPSTONE_REQUEST"
DEFAULT_REQUEST = "/etc/skipstone/request.json"


def request_path(environment: Mapping[str, str]) -> Path:
    """Where the request of this process is."""
    return Path(environment.get(REQUEST_VARIABLE, DEFAULT_REQUEST))


def may_do_without_spark(environment: Mapping[str, str]) -> bool:
    """Return whether the driver may be able to do all of the request by itself.

    The request loads or merges files of another format than Orc, or merges the change feed of a tool, and the
    Warehouse does not want Spark for all work. Files that are registered are never read by Spark.
    """
    try:
        request = json.loads(request_path(environment).read_text())
        task = request.get("merge") or request["load"]
        if task.get("mode") == "Register":
            return True
        wants_spark = request.get("spark", {}).get("smallWork") == "Spark"
        source = task["source"]
        return bool(source["format"] != "Orc" or source.get("changeFormat")) and not wants_spark
    except (OSError, ValueError, LookupError, TypeError, AttributeError):
        return False
