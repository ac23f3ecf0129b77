"""Java libraries that tests need, fetched once by the Ivy that PySpark ships and kept under ``.cache/jars``.

Used by the second engine (plain Spark with the Iceberg runtime) and by the REST catalog server.
"""

from __future__ import annotations

import fcntl
import os
import subprocess
from pathlib import Path

import pyspark

CACHE = Path(__file__).parents[2] / ".cache" / "jars"
SPARK_JARS = Path(pyspark.__file__).parent / "jars"
FETCH_SECONDS = 600

ICEBERG_RUNTIME = ("org.apache.iceberg:iceberg-spark-runtime-4.1_2.13:1.12.0", "org.xerial:sqlite-jdbc:3.50.3.0")


def jar_paths(name: str, coordinates: tuple[str, ...]) -> list[Path]:
    """The jars of ``coordinates`` (group:artifact:version[:classifier]) in the folder ``name``; fetches what lacks."""
    folder = CACHE / name
    folder.mkdir(parents=True, exist_ok=True)
    with (folder / "lock").open("w") as lock:
        fcntl.flock(lock, fcntl.LOCK_EX)
        return [_jar(folder, coordinate) for coordinate in coordinates]


def _jar(folder: Path, coordinate: str) -> Path:
    group, artifact, version, *classifier = coordinate.split(":")
    path = folder / "-".join([artifact, version, *classifier])
    path = path.with_name(path.name + ".jar")
    if not path.exists():
        _fetch(path, (group, artifact, version, classifier))
    return path


def _fetch(path: Path, module: tuple[str, str, str, list[str]]) -> None:
    group, artifact, version, classifier = module
    landing = path.with_suffix(".landing")
    ivy = path.parent / f"{path.name}.ivy.xml"
    extra = f' m:classifier="{classifier[0]}"' if classifier else ""
    ivy.write_text(
        '<ivy-module version="2.0" xmlns:m="http://ant.apache.org/ivy/maven">'
        '<info organisation="skipstone" module="tests"/><configurations><conf name="default"/></configurations>'
        f'<dependencies><dependency org="{group}" name="{artifact}" rev="{version}" transitive="false" '
        f'conf="default->master"><artifact name="{artifact}" type="jar"{extra}/></dependency></dependencies></ivy-module>'
    )
    command = ["java", "-cp", f"{SPARK_JARS}/*", "org.apache.ivy.Main", "-warn", "-m2compatible", "-notransitive"]
    command += ["-ivy", str(ivy), "-cache", str(path.parent / "ivy"), "-confs", "default", "-retrieve"]
    command.append(f"{landing}/[artifact]-[revision].[ext]")
    subprocess.run(command, check=True, timeout=FETCH_SECONDS, env={**os.environ}, capture_output=True)
    ivy.unlink()
    (jar,) = landing.iterdir()
    jar.rename(path)
    landing.rmdir()
