"""Spark settings of a run: memory, cores and ``spark.properties``.

Called by ``run`` and ``pods``; pure. Users choose from an allow-list; what keeps a run right is not theirs to change.
"""

from __future__ import annotations

import math
import re
from collections.abc import Mapping
from dataclasses import dataclass

from skipstone_core.contract.spark import SparkRef
from skipstone_core.errors import BadSpec
from skipstone_core.ids import bounded_name
from skipstone_core.reasons import Reason
from skipstone_core.table_properties import shown

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
from skipstone_operator.resources.rules.sparkconf import (
    LEAST_HEAP_MIB,
    MIB,
    MOST_BYTES,
    find_conf_problems,
    parse_bytes,
)
from skipstone_operator.resources.warehouse import SparkSettings

#: Spark's own factor for applications whose work runs outside the JVM's heap.
OVERHEAD_FACTOR = 0.4
MIN_OVERHEAD_MIB = 384
#: Spark names executors ``<prefix>-exec-<number>`` and takes a prefix of at most 47 characters.
MAX_POD_PREFIX = 47

#: Defaults that a Warehouse may change.
DEFAULTS = {
    "spark.speculation": "false",
    "spark.ui.enabled": "false",
    "spark.kubernetes.executor.enablePollingWithResourceVersion": "true",
}
#: What answers depend on, or what the pod is built around.
FIXED = {
    "spark.authenticate": "true",
    "spark.network.crypto.cipher": "AES/GCM/NoPadding",
    "spark.network.crypto.enabled": "true",
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
        """Return whether the driver pod is all there is."""
        return self.instances == 0


def plan_spark(spec: SparkSettings, ref: SparkRef) -> SparkPlan:
    """Sizes from the Warehouse; counts from the request of a run, which the driver plans by. Raises BadSpec."""
    check_spark(spec)
    heap = parse_heap(spec.driver.memory, "spec.spark.driver.memory")
    return SparkPlan(
        instances=ref.instances,
        driver_cores=ref.driver_cores,
        driver_cpu_request=spec.conf.get("spark.kubernetes.driver.request.cores", str(ref.driver_cores)),
        driver_heap_mib=heap,
        driver_overhead_mib=overhead_mib(heap, spec.conf, "driver"),
        executor_cores=ref.executor_cores,
        executor_memory=f"{parse_heap(spec.executor.memory, 'spec.spark.executor.memory')}m",
        conf=spec.conf,
    )


def check_spark(spec: SparkSettings) -> None:
    """Raise BadSpec for the first setting or size from which Kubernetes or Spark could not start a run."""
    for problem in find_conf_problems(spec.conf, spec.executor.cores):
        raise BadSpec(Reason.INVALID_SPEC, problem.message, field=f"spec.spark.conf[{problem.name}]")
    for side, size in (("driver", spec.driver), ("executor", spec.executor)):
        parse_heap(size.memory, f"spec.spark.{side}.memory")


def parse_heap(text: str, field: str) -> int:
    """Mebibytes of a JVM's memory, rounded up. Raises BadSpec."""
    read = parse_bytes(text.strip()) if not text.strip().isdigit() else None
    if read is None:
        raise BadSpec(
            Reason.INVALID_SPEC, f"{shown(text)} is not an amount of memory; write for example 2Gi", field=field
        )
    if not LEAST_HEAP_MIB * MIB <= read <= MOST_BYTES:
        message = f"{shown(text)} is out of bounds: Spark starts with {LEAST_HEAP_MIB}m or more, and 16t are the limit"
        raise BadSpec(Reason.INVALID_SPEC, message, field=field)
    return math.ceil(read / MIB)


def overhead_mib(heap_mib: int, conf: Mapping[str, str], side: str) -> int:
    """Memory of ``side`` (driver, executor) beyond its heap: what conf says, else 0.4 of the heap, at least 384 MiB."""
    name = f"spark.{side}.memoryOverhead"
    if fixed := parse_bytes(conf.get(name, ""), "m"):
        return math.ceil(fixed / MIB)
    return max(math.ceil(float(conf.get(f"{name}Factor", OVERHEAD_FACTOR)) * heap_mib), MIN_OVERHEAD_MIB)


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
    return {
        **executor_overhead(plan.conf),
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


def executor_overhead(conf: Mapping[str, str]) -> dict[str, str]:
    """What Spark adds to an executor's heap; in its own units, which are fewer than ours."""
    if "spark.executor.memoryOverhead" in conf:
        return {"spark.executor.memoryOverhead": f"{overhead_mib(0, conf, 'executor')}m"}
    name = "spark.executor.memoryOverheadFactor"
    return {name: conf.get(name, str(OVERHEAD_FACTOR))}


def render_properties(properties: Mapping[str, str]) -> str:
    """A Java properties file, sorted by key."""
    return "".join(f"{_escaped(key)}={_escaped(value)}\n" for key, value in sorted(properties.items()))


def _escaped(text: str) -> str:
    escaped = re.sub(r"([\\=:#!])", r"\\\1", text)
    escaped = escaped.replace("\n", r"\n").replace("\r", r"\r").replace("\t", r"\t")
    return re.sub(r"^ ", r"\\ ", escaped)
