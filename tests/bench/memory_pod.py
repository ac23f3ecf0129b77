"""The driver pod of a Warehouse that sets nothing, as far as memory goes: the settings and the limit of its process.

Used by `make bench-memory`. Both are the operator's; a cgroup keeps the limit where this machine lets one be made.
"""

from __future__ import annotations

import shlex
import tempfile
import threading
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass, field
from pathlib import Path

import pyspark
from skipstone_core.contract.spark import SparkRef
from skipstone_operator.manifests.pods import driver_env, driver_resources
from skipstone_operator.manifests.spark import DEFAULTS, plan_spark
from skipstone_operator.resources.rules.sparkconf import parse_bytes
from skipstone_operator.resources.warehouse import SparkSettings

from tests.bench.lineitem import ROOT

_DEFAULTS_OF_IMAGE = ROOT / "spark_apps" / "image" / "spark-defaults.conf"
_CGROUPS = Path("/sys/fs/cgroup")
#: Seconds between two looks at how much a cgroup holds.
_INTERVAL = 0.02
_PLAN = plan_spark(SparkSettings(), SparkRef())
#: Bytes that the pod may hold.
LIMIT = parse_bytes(driver_resources(_PLAN)["limits"]["memory"]) or 0


def pod_environment() -> Mapping[str, str]:
    """The variables by which the driver's JVM is started, without the places of the image."""
    settings = {
        **DEFAULTS,
        "spark.master": f"local[{_PLAN.driver_cores}]",
        "spark.driver.memory": f"{_PLAN.driver_heap_mib}m",
        "spark.driver.host": "127.0.0.1",
        "spark.driver.bindAddress": "127.0.0.1",
        "spark.driver.defaultJavaOptions": _image_options(),
    }
    submit = shlex.join(word for name, value in settings.items() for word in ("--conf", f"{name}={value}"))
    options = {one["name"]: one["value"] for one in driver_env(_PLAN) if one["name"] == "SPARK_SUBMIT_OPTS"}
    return {"PYSPARK_SUBMIT_ARGS": f"{submit} pyspark-shell", "SPARK_HOME": pyspark.__path__[0], **options}


def _image_options() -> str:
    """What the image says of a driver's JVM, but for the archive of classes, which only the image has."""
    lines = (line.split(maxsplit=1) for line in _DEFAULTS_OF_IMAGE.read_text().splitlines())
    (options,) = (line[1] for line in lines if line[0] == "spark.driver.defaultJavaOptions")
    return " ".join(word for word in options.split() if "SharedArchiveFile" not in word)


@dataclass
class Held:
    """What the processes of a run held together. ``peak``: bytes at most at a time that the kernel could not take back.

    None where no cgroup tells. ``enter``: moves the process that calls it into the cgroup.
    """

    group: Path | None
    peak: int | None = None
    _ended: threading.Event = field(default_factory=threading.Event)

    def enter(self) -> None:
        """Move this process into the cgroup, if there is one."""
        if self.group is not None:
            (self.group / "cgroup.procs").write_text("0")

    def watch(self) -> None:
        """Look again and again, until ``stop``."""
        while not self._ended.wait(_INTERVAL):
            if self.group is not None:
                told = dict(line.split() for line in (self.group / "memory.stat").read_text().splitlines())
                names = ("total_rss", "total_shmem") if "total_rss" in told else ("anon", "shmem")
                self.peak = max(self.peak or 0, sum(int(told.get(name, 0)) for name in names))

    def stop(self) -> None:
        """Look no more."""
        self._ended.set()


@contextmanager
def limited(limit: int | None) -> Iterator[Held]:
    """A cgroup for one process, which enters it, and all that it starts. ``limit`` in bytes; None: any."""
    group = _new_group(limit)
    held = Held(group)
    watching = threading.Thread(target=held.watch)
    watching.start()
    try:
        yield held
    finally:
        held.stop()
        watching.join()
        if group is not None:
            _remove(group)


def _new_group(limit: int | None) -> Path | None:
    """None where this machine does not let us."""
    found = [line.split(":", 2) for line in Path("/proc/self/cgroup").read_text().splitlines()]
    own = next((path for _, names, path in found if names == "memory"), None)
    # below the own one in the first version of cgroups; beside it in the second, where inner ones hold no processes
    parent = _CGROUPS / "memory" / own.lstrip("/") if own else (_CGROUPS / found[0][2].lstrip("/")).parent
    name = "memory.limit_in_bytes" if own else "memory.max"
    group = None
    try:
        group = Path(tempfile.mkdtemp(prefix="skipstone-bench-", dir=parent))
        (group / name).write_text(str(limit or -1) if own else str(limit or "max"))
        (group / "memory.stat").read_text()
    except OSError:
        if group is not None:
            group.rmdir()
        return None
    return group


def _remove(group: Path) -> None:
    """Processes that end right now keep it for a moment."""
    for _ in range(100):
        try:
            group.rmdir()
        except OSError:
            threading.Event().wait(0.1)
        else:
            return
