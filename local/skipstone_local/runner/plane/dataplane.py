"""What is started for a container of the data plane's image: what the image and its entrypoint do, on this machine.

The image is never looked at: its containers run the data plane that an interpreter of this machine has. Containers of
other images, and other commands, are not run.
"""

from __future__ import annotations

import os
import re
import subprocess
import sys
from collections.abc import Mapping
from dataclasses import dataclass
from importlib.util import find_spec
from pathlib import Path

from skipstone_operator.manifests.pods import AUTHORITIES_VARIABLE
from skipstone_operator.manifests.shape import PYTHON

from skipstone_local.runner.environment import CannotMake, JsonObject
from skipstone_local.runner.folders import CONF, TRUST, PodFolder
from skipstone_local.runner.mounts import SUBMIT_ARGUMENTS, has_bucket
from skipstone_local.runner.plane.jars import JarCache, JarsMissing
from skipstone_local.runner.plane.trust import trust
from skipstone_local.runner.supervise import POD_VARIABLE

APP = "app"
_KIND = re.compile(r"[a-z]+")
_FIND_SPARK = (
    "import importlib.util as u, os; s = u.find_spec('pyspark'); print(os.path.dirname(s.origin) if s else '', end='')"
)
#: Variables of this machine that say something else of a run than its pod does.
_FOREIGN = ("SKIPSTONE_", "SPARK_", "PYSPARK_", "POD_", "KUBERNETES_", "PYTEST_", "COV_")
_FOREIGN_NAMES = frozenset({"KUBECONFIG", "PYTHONSTARTUP", "PYTHONINSPECT", "TMPDIR", "TEMP", "TMP"})
#: Where Amazon's programs look below a person's home, which is not that of a run.
_HOME_FILES = {"AWS_CONFIG_FILE": ".aws/config", "AWS_SHARED_CREDENTIALS_FILE": ".aws/credentials"}
#: Of the image: the launcher only puts the command of the real JVM together.
_IMAGE = {"PYTHONUNBUFFERED": "1", "SPARK_LAUNCHER_OPTS": "-XX:TieredStopAtLevel=1 -XX:+UseSerialGC"}
#: Of the image's spark-defaults.conf: what a short driver is spared by Java's second compiler.
_JAVA_OPTIONS = (
    "-XX:Tier4InvocationThreshold=50000 -XX:Tier4MinInvocationThreshold=6000 -XX:Tier4CompileThreshold=150000 "
    "-XX:Tier4BackEdgeThreshold=400000"
)


@dataclass(frozen=True)
class DataPlane:
    """The data plane of this machine: ``python`` is an interpreter that has it, ``spark`` the folder of its PySpark.

    ``host``: the variables of this machine. ``jars``: where the libraries are that Spark gets besides its own.
    """

    python: str
    host: Mapping[str, str]
    spark: str = ""
    jars: JarCache | None = None

    @staticmethod
    def find(python: str, host: Mapping[str, str]) -> DataPlane:
        """The data plane that ``python`` has; without PySpark, runs that need Spark say so."""
        return DataPlane(python, host, _find_spark(python), JarCache.of_machine(host))

    @property
    def interpreters(self) -> Mapping[str, str]:
        """Where the image's interpreter is here."""
        return {PYTHON: self.python}

    def command(self, container: JsonObject) -> list[str]:
        """Return the command for ``container``. Raises CannotMake for one that is not run here."""
        arguments = [str(argument) for argument in container.get("args") or ()]
        if container.get("command") or len(arguments) != 2 or arguments[0] != APP or not _KIND.fullmatch(arguments[1]):
            raise CannotMake(
                f"the image {container.get('image', '')} is not run here: only runs of Skipstone are, as processes"
            )
        return [self.python, "-P", "-m", f"skipstone.apps.{arguments[1]}"]

    def environment(self, folder: PodFolder, scratch: Path, variables: Mapping[str, str]) -> dict[str, str]:
        """All variables of the process of a pod: those of this machine, of the image, and ``variables`` of the pod.

        ``scratch``: the folder in the place of /tmp. Raises CannotMake for authorities that cannot be used, for
        libraries that cannot be fetched, and as long as they are being fetched.
        """
        environment = self._inherited() | _IMAGE | {"TMPDIR": str(scratch), "SPARK_LOCAL_IP": "127.0.0.1"}
        if self.spark:
            environment |= {
                "SPARK_HOME": self.spark,
                "SPARK_CONF_DIR": str(self._write_conf(folder, scratch, variables)),
            }
        environment |= variables
        if authorities := environment.get(AUTHORITIES_VARIABLE):
            environment |= trust(Path(authorities), folder.path / TRUST, environment)
        if environment.get("AWS_ACCESS_KEY_ID") and environment.get("AWS_SECRET_ACCESS_KEY"):
            # Whoever has keys asks no metadata service of the machine, where Arrow would wait for an answer.
            environment.setdefault("AWS_EC2_METADATA_DISABLED", "true")
        return environment | {
            POD_VARIABLE: folder.uid,
            "SKIPSTONE_REPORT": str(folder.report),
            "SKIPSTONE_TERMINATION_LOG": str(folder.termination),
        }

    def _inherited(self) -> dict[str, str]:
        kept = {
            name: value
            for name, value in self.host.items()
            if not name.startswith(_FOREIGN) and name not in _FOREIGN_NAMES
        }
        home = Path(self.host.get("HOME") or os.sep)
        there = {name: home / path for name, path in _HOME_FILES.items()}
        return {name: str(path) for name, path in there.items() if path.is_file()} | kept

    def _write_conf(self, folder: PodFolder, scratch: Path, variables: Mapping[str, str]) -> Path:
        conf = folder.path / CONF
        conf.mkdir(exist_ok=True)
        lines = [f'spark.driver.defaultJavaOptions "-Djava.io.tmpdir={_escaped(scratch)}" {_JAVA_OPTIONS}']
        if jars := self._find_jars(variables):
            lines.append(f"spark.driver.extraClassPath {':'.join(map(_escaped, jars))}")
        (conf / "spark-defaults.conf").write_text("\n".join([*lines, ""]))
        return conf

    def _find_jars(self, variables: Mapping[str, str]) -> tuple[Path, ...]:
        """Return the jars with which Spark reads the sources of a run that may need it."""
        request = Path(variables.get("SKIPSTONE_REQUEST", ""))
        if self.jars is None or SUBMIT_ARGUMENTS not in variables or not request.is_file():
            return ()
        if not has_bucket(request.read_text()):
            return ()
        try:
            files = self.jars.await_fetched("s3a")
        except JarsMissing as error:
            raise CannotMake(str(error)) from error
        if files is None:
            raise CannotMake("the libraries by which Spark reads buckets are being fetched")
        return files


def _find_spark(python: str) -> str:
    """The folder of the PySpark that ``python`` has, without importing it; empty if it has none."""
    if python == sys.executable:
        spec = find_spec("pyspark")
        return str(Path(spec.origin).parent) if spec is not None and spec.origin else ""
    return subprocess.run([python, "-P", "-c", _FIND_SPARK], capture_output=True, text=True, check=False).stdout


def _escaped(path: Path) -> str:
    """``path`` as the value of a property."""
    return str(path).replace("\\", "\\\\")
