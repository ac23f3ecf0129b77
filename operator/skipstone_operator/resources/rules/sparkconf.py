"""The Spark settings that a Warehouse may set: which there are, and which values each of them takes.

Read by the schema, by the reference page and where pods are built. What is accepted here, Spark and Kubernetes accept:
a value that they refuse would end every run of the Warehouse. Data and pure checks.
"""

from __future__ import annotations

import re
from collections.abc import Iterator, Mapping

from skipstone_core.table_properties import Check, Problem, one_of, shown, whole

MIB = 1 << 20
#: More memory than any node has.
MOST_BYTES = 1 << 44
#: What Spark needs at least to start, for driver and executors.
LEAST_HEAP_MIB = 450
MOST_SECONDS = 7 * 24 * 3600
_UNITS = {"": 0, "b": 0, "k": 10, "m": 20, "g": 30, "t": 40}
_TIMES = {"us": 1e-6, "ms": 1e-3, "s": 1.0, "m": 60.0, "min": 60.0, "h": 3600.0, "d": 86400.0}
_DIGITS = 15
_NUMBER = re.compile(r"[0-9]{1,6}(\.[0-9]{1,6})?")
_QUANTITY = re.compile(r"([0-9]{1,6})m|[0-9]{1,3}(\.[0-9]{1,3})?")
MOST_CORES = 256.0


def parse_bytes(text: str, unit: str = "b") -> int | None:
    """Bytes of ``512m``, ``2g``, ``2gb`` or, as Kubernetes writes them, ``2Gi``; a bare number counts ``unit``."""
    match = re.fullmatch(rf"([0-9]{{1,{_DIGITS}}})([bkmgt]?)(b|i)?", text.lower())
    if match is None or (match[3] and match[2] in ("", "b")):
        return None
    return int(match[1]) << _UNITS[match[2] or unit]


def size(least: int = 1, *, unit: str = "b", also: tuple[str, ...] = ()) -> Check:
    """An amount of memory of at least ``least`` bytes, as Spark reads it, or one of ``also``."""

    def check(text: str) -> str | None:
        read = None if text.lower().endswith("i") else parse_bytes(text, unit)
        if text in also or (read is not None and least <= read <= MOST_BYTES):
            return None
        return f"{shown(text)} is not a size from {least} bytes to 16t: write for example 512m"

    return check


def memory(text: str) -> str | None:
    """An amount of memory that Skipstone computes with; a bare number counts MiB."""
    read = parse_bytes(text, "m")
    fits = read is not None and 0 < read <= MOST_BYTES
    return None if fits else f"{shown(text)} is not an amount of memory up to 16t: write for example 2g"


def seconds(text: str, unit: str) -> float | None:
    """Seconds of ``30s``, ``5min`` or ``100ms``; a bare number counts ``unit``."""
    match = re.fullmatch(r"([0-9]{1,10})([a-z]*)", text)
    scale = _TIMES.get(match[2] or unit) if match else None
    return int(match[1]) * scale if match and scale is not None else None


def span(unit: str) -> Check:
    """A time of a millisecond to seven days."""

    def check(text: str) -> str | None:
        read = seconds(text, unit)
        fits = read is not None and 1e-3 <= read <= MOST_SECONDS
        return None if fits else f"{shown(text)} is not a time from 1ms to 7d: write for example 30s"

    return check


def number(low: float, high: float) -> Check:
    """A decimal number from ``low`` to ``high``."""

    def check(text: str) -> str | None:
        fits = _NUMBER.fullmatch(text) is not None and low <= float(text) <= high
        return None if fits else f"{shown(text)} is not a number from {low:g} to {high:g}: write for example 0.5"

    return check


def parse_cores(text: str) -> float | None:
    """Cores of ``2``, ``0.5`` or ``500m``."""
    match = _QUANTITY.fullmatch(text)
    if match is None:
        return None
    return int(match[1]) / 1000 if match[1] else float(text)


def cores(text: str) -> str | None:
    """An amount of CPU, as Kubernetes reads it."""
    read = parse_cores(text)
    fits = read is not None and 0 < read <= MOST_CORES
    return None if fits else f"{shown(text)} is not a number of cores up to {MOST_CORES:g}: write for example 2 or 500m"


_BOOLEAN = one_of("true", "false")
_COUNT = whole(1, 1_000_000)
_RATIO = number(0, 1)
_LOG_LEVELS = ("all", "trace", "debug", "info", "warn", "error", "fatal", "off")
NETWORK_TIMEOUT, HEARTBEAT = "spark.network.timeout", "spark.executor.heartbeatInterval"
EXECUTOR_REQUEST, EXECUTOR_LIMIT = "spark.kubernetes.executor.request.cores", "spark.kubernetes.executor.limit.cores"

#: Every setting with the check of its value. None of them names code, a path or another machine.
SETTINGS: Mapping[str, Check] = {
    "spark.default.parallelism": _COUNT,
    "spark.driver.maxResultSize": size(MIB, also=("0",)),
    "spark.driver.memoryOverhead": memory,
    "spark.driver.memoryOverheadFactor": number(0, 100),
    "spark.excludeOnFailure.enabled": _BOOLEAN,
    HEARTBEAT: span("ms"),
    "spark.executor.memoryOverhead": memory,
    "spark.executor.memoryOverheadFactor": number(0.01, 100),
    "spark.executor.pyspark.memory": size(MIB, unit="m"),
    "spark.io.compression.codec": one_of("lz4", "lzf", "snappy", "zstd"),
    "spark.kubernetes.allocation.batch.delay": span("ms"),
    "spark.kubernetes.allocation.batch.size": whole(1, 10_000),
    "spark.kubernetes.driver.request.cores": cores,
    EXECUTOR_LIMIT: cores,
    EXECUTOR_REQUEST: cores,
    "spark.locality.wait": lambda text: None if text in ("0", "0s", "0ms") else span("ms")(text),
    "spark.log.level": one_of(*_LOG_LEVELS),
    "spark.memory.fraction": number(0.05, 0.95),
    "spark.memory.storageFraction": number(0, 0.95),
    NETWORK_TIMEOUT: span("s"),
    "spark.python.worker.reuse": _BOOLEAN,
    "spark.rdd.compress": _BOOLEAN,
    "spark.rpc.message.maxSize": whole(1, 2047),
    "spark.scheduler.maxRegisteredResourcesWaitingTime": span("ms"),
    "spark.scheduler.minRegisteredResourcesRatio": _RATIO,
    "spark.shuffle.compress": _BOOLEAN,
    "spark.shuffle.spill.compress": _BOOLEAN,
    "spark.speculation": _BOOLEAN,
    "spark.speculation.interval": span("ms"),
    "spark.speculation.multiplier": number(1, 1000),
    "spark.speculation.quantile": _RATIO,
    "spark.sql.adaptive.advisoryPartitionSizeInBytes": size(),
    "spark.sql.adaptive.coalescePartitions.enabled": _BOOLEAN,
    "spark.sql.adaptive.enabled": _BOOLEAN,
    "spark.sql.adaptive.skewJoin.enabled": _BOOLEAN,
    "spark.sql.autoBroadcastJoinThreshold": size(0, also=("-1",)),
    "spark.sql.execution.arrow.maxRecordsPerBatch": whole(1, 10_000_000),
    "spark.sql.files.maxPartitionBytes": size(),
    "spark.sql.files.openCostInBytes": size(0),
    "spark.sql.shuffle.partitions": _COUNT,
    "spark.stage.maxConsecutiveAttempts": whole(1, 1000),
    "spark.task.maxFailures": whole(1, 1000),
    "spark.ui.enabled": _BOOLEAN,
}


def find_conf_problems(conf: Mapping[str, str], executor_cores: int) -> Iterator[Problem]:
    """What is wrong with these settings, one by one and together."""
    for name in sorted(conf):
        check = SETTINGS.get(name)
        if check is None:
            yield Problem(name, f"it may not be set; remove it or choose from: {', '.join(SETTINGS)}")
        elif message := check(conf[name]):
            yield Problem(name, message)
        else:
            yield from _at_odds(name, conf, executor_cores)


def _at_odds(name: str, conf: Mapping[str, str], executor_cores: int) -> Iterator[Problem]:
    if name == HEARTBEAT and _outlasts_timeout(conf):
        yield Problem(name, f"it must be shorter than {NETWORK_TIMEOUT}, which is 120s when it is not set: shorten it")
    if name == NETWORK_TIMEOUT and HEARTBEAT not in conf and _outlasts_timeout(conf):
        yield Problem(name, f"it must be longer than {HEARTBEAT}, which is 10s when it is not set: write 30s or more")
    request = conf.get(EXECUTOR_REQUEST, str(executor_cores))
    if name == EXECUTOR_LIMIT and (parse_cores(conf[name]) or 0) < (parse_cores(request) or 0):
        yield Problem(name, f"it is less than the {shown(request)} cores that an executor asks for: raise it")


def _outlasts_timeout(conf: Mapping[str, str]) -> bool:
    """Return whether a heartbeat comes too late. Spark counts timeouts in whole seconds, heartbeats in whole ms."""
    heartbeat, timeout = seconds(conf.get(HEARTBEAT, "10s"), "ms"), seconds(conf.get(NETWORK_TIMEOUT, "120s"), "s")
    return round((heartbeat or 0) * 1e6) // 1000 >= round((timeout or 0) * 1e6) // 1_000_000 * 1000
