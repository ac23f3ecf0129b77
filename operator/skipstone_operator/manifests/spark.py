"""Spark settings of a run: memory, cores and ``spark.properties``.

Called by ``run`` and ``pods``; pure. Users choose from an allow-list; what keeps a run right is not theirs to change.
"""

from __future__ import annotations

import math
import re
from collections.abc import Mapping
from dataclasses import dataclass

from skipstone_core.contract.requests import JobRequest
from skipstone_core.errors import BadSpec
from skipstone_core.ids import bounded_name
from skipstone_core.reasons import Reason

from skipstone_operator.manifests.names import EXECUTOR_CONTAINER
from skipstone_operator.manifests.shape import (
    BLOCK_MANAGER_PORT,
    CONF_DIRECTORY,
    DRIVER_PORT,
    EXECUTOR_TEMPLATE_FILE,
    PYTHON,
    SCRATCH,
    SPARK_DIRECTORY,
    PodShape,
)
from skipstone_operator.resources.limits import SPARK_CONF
from skipstone_operator.resources.warehouse import SparkSettings

#: Spark's own factor for applications whose work runs outside the JVM's heap.
OVERHEAD_FACTOR = 0.4
MIN_OVERHEAD_MIB = 384
#: Spark names executors ``<prefix>-exec-<number>`` and takes a prefix of at most 47 characters.
MAX_POD_PREFIX = 47
MIB_PER_UNIT = {"k": 1 / 1024, "m": 1.0, "g": 1024.0, "t": 1024.0 * 1024}

#: Defaults that a Warehouse may change.
DEFAULTS = {
    "spark.speculation": "false",
    "spark.ui.enabled": "false",
    "spark.kubernetes.executor.enablePollingWithResourceVersion": "true",
}
#: What answers depend on, or what the pod is built around.
FIXED = {
    "spark.sql.session.timeZone": "UTC",
    "spark.sql.files.ignoreCorruptFiles": "false",
    "spark.sql.files.ignoreMissingFiles": "false",
    "spark.sql.warehouse.dir": f"{SCRATCH}/spark-warehouse",
    "spark.local.dir": SPARK_DIRECTORY,
    "spark.pyspark.python": PYTHON,
    "spark.pyspark.driver.python": PYTHON,
    "spark.ui.showConsoleProgress": "false",
}


@dataclass(frozen=True, kw_only=True)
class SparkPlan:
    """Sizes of a Spark run. Memory in MiB; ``instances`` 0 runs everything in the driver pod."""

    instances: int
    driver_cores: int
    driver_cpu_request: str
    driver_heap_mib: int
    driver_overhead_mib: int
    executor_cores: int
    executor_memory: str
    conf: Mapping[str, str]

    @property
    def local(self) -> bool:
        """Whether the driver pod is all there is."""
        return self.instances == 0


def plan_spark(spec: SparkSettings, request: JobRequest) -> SparkPlan:
    """Sizes from the Warehouse; counts from the request, which the driver plans by. Raises BadSpec."""
    check_conf(spec.conf)
    heap = parse_mib(spec.driver.memory, "spec.spark.driver.memory")
    return SparkPlan(
        instances=request.spark.instances,
        driver_cores=request.spark.driver_cores,
        driver_cpu_request=spec.conf.get("spark.kubernetes.driver.request.cores", str(request.spark.driver_cores)),
        driver_heap_mib=heap,
        driver_overhead_mib=overhead_mib(heap, spec.conf, "driver"),
        executor_cores=request.spark.executor_cores,
        executor_memory=f"{parse_mib(spec.executor.memory, 'spec.spark.executor.memory')}m",
        conf=spec.conf,
    )


def check_conf(conf: Mapping[str, str]) -> None:
    """Raise BadSpec for the first setting that is not on the allow-list, or whose value no pod can be built from."""
    for key in sorted(set(conf) - set(SPARK_CONF)):
        raise BadSpec(
            Reason.INVALID_SPEC,
            f"{key!r} may not be set; remove it or choose from: {', '.join(SPARK_CONF)}",
            field="spec.spark.conf",
        )
    for side in ("driver", "executor"):
        overhead_mib(0, conf, side)


def parse_mib(text: str, field: str) -> int:
    """Mebibytes of ``512m``, ``2g`` or, as Kubernetes writes them, ``512Mi``, ``2Gi``; rounded up. Raises BadSpec."""
    matched = re.fullmatch(r"([0-9]+)([kmgt])i?", text.strip().lower())
    if not matched:
        raise BadSpec(Reason.INVALID_SPEC, f"{text!r} is no amount of memory; write for example 2Gi", field=field)
    return math.ceil(int(matched[1]) * MIB_PER_UNIT[matched[2]])


def overhead_mib(heap_mib: int, conf: Mapping[str, str], side: str) -> int:
    """Memory of ``side`` (driver, executor) beyond its heap: what conf says, else 0.4 of the heap, at least 384 MiB."""
    name = f"spark.{side}.memoryOverhead"
    if fixed := conf.get(name):
        unit = "m" if fixed.strip().isdigit() else ""
        return parse_mib(fixed.strip() + unit, f"spec.spark.conf[{name}]")
    return max(math.ceil(_factor(conf, f"{name}Factor") * heap_mib), MIN_OVERHEAD_MIB)


def _factor(conf: Mapping[str, str], name: str) -> float:
    text = conf.get(name)
    if text is None:
        return OVERHEAD_FACTOR
    if not re.fullmatch(r"[0-9]+(\.[0-9]+)?", text.strip()):
        field = f"spec.spark.conf[{name}]"
        raise BadSpec(Reason.INVALID_SPEC, f"{text!r} is no number; write for example 0.4", field=field)
    return float(text)


def build_spark_properties(shape: PodShape, plan: SparkPlan) -> dict[str, str]:
    """All properties of the run, except those that only the running pod knows."""
    application = bounded_name(shape.request.run_id)
    return {
        **DEFAULTS,
        **plan.conf,
        **FIXED,
        "spark.app.id": application,
        "spark.app.name": f"{shape.request.owner_kind.lower()}/{shape.request.owner_name}",
        "spark.driver.cores": str(plan.driver_cores),
        "spark.driver.memory": f"{plan.driver_heap_mib}m",
        **(local_properties(plan) if plan.local else cluster_properties(shape, plan)),
    }


def local_properties(plan: SparkPlan) -> dict[str, str]:
    """Everything in the driver's JVM and its Python workers."""
    return {"spark.master": f"local[{plan.driver_cores}]"}


def cluster_properties(shape: PodShape, plan: SparkPlan) -> dict[str, str]:
    """Executors as pods of their own, owned by the driver pod."""
    overhead = (
        {}
        if "spark.executor.memoryOverhead" in plan.conf
        else {
            "spark.executor.memoryOverheadFactor": plan.conf.get(
                "spark.executor.memoryOverheadFactor", str(OVERHEAD_FACTOR)
            )
        }
    )
    return {
        **overhead,
        "spark.executor.instances": str(plan.instances),
        "spark.executor.cores": str(plan.executor_cores),
        "spark.executor.memory": plan.executor_memory,
        "spark.driver.port": str(DRIVER_PORT),
        "spark.driver.blockManager.port": str(BLOCK_MANAGER_PORT),
        "spark.blockManager.port": str(BLOCK_MANAGER_PORT),
        "spark.kubernetes.namespace": shape.namespace,
        "spark.kubernetes.container.image": shape.image,
        "spark.kubernetes.container.image.pullPolicy": shape.pull_policy,
        "spark.kubernetes.authenticate.executor.serviceAccountName": shape.service_account,
        "spark.kubernetes.executor.disableConfigMap": "true",
        "spark.kubernetes.executor.podNamePrefix": bounded_name(shape.request.run_id, MAX_POD_PREFIX),
        "spark.kubernetes.executor.podTemplateContainerName": EXECUTOR_CONTAINER,
        "spark.kubernetes.executor.podTemplateFile": f"{CONF_DIRECTORY}/{EXECUTOR_TEMPLATE_FILE}",
    }


def render_properties(properties: Mapping[str, str]) -> str:
    """A Java properties file, sorted by key."""
    return "".join(f"{_escaped(key)}={_escaped(value)}\n" for key, value in sorted(properties.items()))


def _escaped(text: str) -> str:
    escaped = re.sub(r"([\\=:#!])", r"\\\1", text)
    escaped = escaped.replace("\n", r"\n").replace("\r", r"\r").replace("\t", r"\t")
    return re.sub(r"^ ", r"\\ ", escaped)
