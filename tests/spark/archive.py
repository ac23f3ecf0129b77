"""The archive of Java classes that JVMs of tests map, as those of pods do: it spares each most of its start.

Made once for a Python environment, by the program that makes the one of the image.
"""

from __future__ import annotations

import fcntl
import os
import subprocess
import sys
from pathlib import Path

import pyspark

SPARK_JARS = Path(pyspark.__file__).parent / "jars"
PROGRAM = Path(__file__).parents[2] / "spark_apps" / "image" / "archive_classes.py"
SECONDS = 600


def spark_settings(java_options: str) -> Path:
    """A folder with the ``spark-defaults.conf`` by which sessions map the archive; makes both when they are missing.

    ``java_options``: of the JVMs that are to map it.
    """
    # The archive knows jars below the folder of its class path only, and no JVM but the one that made it maps it
    folder = Path(sys.prefix) / f"spark-{pyspark.__version__}-{java_version()}"
    settings = folder / "spark-defaults.conf"
    folder.mkdir(exist_ok=True)
    with (folder / "lock").open("w") as lock:
        fcntl.flock(lock, fcntl.LOCK_EX)
        if not settings.exists():
            archive = folder / "classes.jsa"
            archive.unlink(missing_ok=True)
            make(archive, java_options)
            settings.write_text(
                f"spark.driver.extraClassPath {class_path()}\n"
                f"spark.driver.defaultJavaOptions -XX:SharedArchiveFile={archive} -Xlog:cds+dynamic=off\n"
            )
    return folder


def class_path() -> Path:
    """The jar that names those of Spark: the first of every class path with which a JVM maps the archive."""
    return Path(sys.prefix) / f"spark-{pyspark.__version__}.jar"


def java_version() -> str:
    """Such as 17.0.15+6-Debian-1deb12u1."""
    command = ["java", "-XshowSettings:properties", "-version"]
    told = subprocess.run(command, check=True, capture_output=True, text=True, timeout=SECONDS).stderr
    return next(line.split()[-1] for line in told.splitlines() if line.strip().startswith("java.vm.version"))


def make(archive: Path, java_options: str) -> None:
    """Write the archive. Raises RuntimeError with the end of what the program said."""
    environment = {**os.environ, "JDK_JAVA_OPTIONS": java_options, "PYSPARK_PYTHON": sys.executable}
    for name in ("PYSPARK_SUBMIT_ARGS", "SPARK_CONF_DIR"):
        environment.pop(name, None)
    command = [sys.executable, str(PROGRAM), str(SPARK_JARS), str(class_path()), str(archive)]
    ended = subprocess.run(command, capture_output=True, text=True, timeout=SECONDS, env=environment, check=False)
    if ended.returncode:
        raise RuntimeError(f"no archive of classes was made: {ended.stderr[-4000:]}")
