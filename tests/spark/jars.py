"""Java libraries that tests need, fetched once by the Ivy that PySpark ships and kept under ``.cache/jars``.

Used by the second engine (plain Spark with the Iceberg runtime) and by the REST catalog server.
"""

from __future__ import annotations

import fcntl
import os
import shutil
import subprocess
from pathlib import Path
from xml.etree import ElementTree

import pyspark

CACHE = Path(__file__).parents[2] / ".cache" / "jars"
SPARK_JARS = Path(pyspark.__file__).parent / "jars"
FETCH_SECONDS = 900

ICEBERG_RUNTIME = ("org.apache.iceberg:iceberg-spark-runtime-4.1_2.13:1.12.0", "org.xerial:sqlite-jdbc:3.50.3.0")
#: Delta Lake's own writer in Spark.
DELTA = ("io.delta:delta-spark_4.1_2.13:4.4.0",)

#: What the image of runs adds to Spark's own jars so that it reads sources in S3.
S3A = Path(__file__).parents[2] / "spark_apps" / "image" / "s3a.xml"

#: What sessions of users need besides for a Warehouse in S3; with Iceberg's own bundle for Amazon it would be 50 MB.
FOR_S3_SESSIONS = (
    "org.postgresql:postgresql:42.7.7",
    "software.amazon.awssdk:kms:2.29.52",
    "software.amazon.awssdk:url-connection-client:2.29.52",
)


def s3a_jars() -> list[Path]:
    """Hadoop's S3A with what it needs, as the image has it."""
    found = [one.attrib for one in ElementTree.parse(S3A).iter("dependency")]
    return jar_paths("s3a", tuple(f"{one['org']}:{one['name']}:{one['rev']}" for one in found))


def jar_paths(name: str, coordinates: tuple[str, ...]) -> list[Path]:
    """The jars of ``coordinates`` (group:artifact:version[:classifier]) alone; what is not cached is fetched."""
    return _cached(name, coordinates, transitive=False)


def resolved_jars(name: str, coordinates: tuple[str, ...]) -> list[Path]:
    """The jars of ``coordinates`` and of all they need at run time."""
    return _cached(name, coordinates, transitive=True)


def _cached(name: str, coordinates: tuple[str, ...], *, transitive: bool) -> list[Path]:
    """The folder ``name`` is complete when its list of coordinates is written, which happens last."""
    CACHE.mkdir(parents=True, exist_ok=True)
    folder, listed = CACHE / name, "\n".join(coordinates)
    with (CACHE / f"{name}.lock").open("w") as lock:
        fcntl.flock(lock, fcntl.LOCK_EX)
        complete = folder / "coordinates"
        if not complete.exists() or complete.read_text() != listed:
            shutil.rmtree(folder, ignore_errors=True)
            folder.mkdir()
            _retrieve(folder, coordinates, transitive=transitive)
            complete.write_text(listed)
    found = sorted(folder.glob("*.jar"))
    if len(found) < len(coordinates):
        raise RuntimeError(f"only {len(found)} jars of {len(coordinates)} in {folder}")
    return found


def _retrieve(folder: Path, coordinates: tuple[str, ...], *, transitive: bool) -> None:
    module = folder / "ivy.xml"
    module.write_text(
        '<ivy-module version="2.0" xmlns:m="http://ant.apache.org/ivy/maven">'
        '<info organisation="skipstone" module="tests"/><configurations><conf name="default"/></configurations>'
        f"<dependencies>{_dependencies(coordinates, transitive=transitive)}</dependencies>"
        "</ivy-module>"
    )
    home = os.environ.get("JAVA_HOME")
    command = [
        f"{home}/bin/java" if home else "java",
        "-cp",
        f"{SPARK_JARS}/*",
        "org.apache.ivy.Main",
        "-warn",
        "-m2compatible",
    ]
    command += ["-ivy", str(module), "-cache", str(CACHE / "ivy"), "-confs", "default"]
    command += ["-retrieve", f"{folder}/[artifact]-[revision](-[classifier]).[ext]"]
    subprocess.run(command, check=True, timeout=FETCH_SECONDS, stdout=subprocess.DEVNULL)


def _dependencies(coordinates: tuple[str, ...], *, transitive: bool) -> str:
    """One Ivy dependency per module, with an artifact per classifier."""
    modules: dict[tuple[str, ...], list[str]] = {}
    for coordinate in coordinates:
        group, artifact, version, *classifier = coordinate.split(":")
        extra = f' m:classifier="{classifier[0]}"' if classifier else ""
        named = f'<artifact name="{artifact}" type="jar" ext="jar"{extra}/>'
        modules.setdefault((group, artifact, version), []).append(named)
    options = f'transitive="{str(transitive).lower()}" conf="default->{"default" if transitive else "master"}"'
    return "".join(
        f'<dependency org="{group}" name="{artifact}" rev="{version}" {options}>{"".join(artifacts)}</dependency>'
        for (group, artifact, version), artifacts in modules.items()
    )
