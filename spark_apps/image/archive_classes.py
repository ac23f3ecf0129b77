"""Makes the archive of Java classes that drivers and executors map instead of loading and verifying each class.

Runs once, while the image is built: python archive_classes.py JARS_FOLDER CLASSPATH_JAR ARCHIVE. A JVM uses an archive
only when its class path begins like that of the JVM that wrote it, and a folder of jars is listed in no certain order.
So CLASSPATH_JAR is made first, a jar that only names the others, sorted; it is then the first of every class path.
"""

from __future__ import annotations

import os
import struct
import subprocess
import sys
import tempfile
import time
import zipfile
from collections.abc import Iterable
from pathlib import Path

import pyarrow as pa
from pyspark.sql import SparkSession

#: A line of a jar's manifest has at most 72 bytes; those that go on begin with a blank.
_LINE = 72
_EPOCH = (1980, 1, 1, 0, 0, 0)
_SECONDS = 300.0


def main() -> None:
    """Make both files."""
    jars, class_path, archive = (Path(argument).absolute() for argument in sys.argv[1:])
    write_class_path(sorted(jars.glob("*.jar")), class_path)
    with tempfile.TemporaryDirectory() as scratch:
        connection = Path(scratch) / "connection"
        gateway = start_gateway(jars, class_path, archive, connection)
        connect(gateway, connection)
        exercise(Path(scratch))
        gateway.communicate(timeout=_SECONDS)
    if gateway.returncode != 0 or not archive.exists():
        raise SystemExit(f"the JVM ended with {gateway.returncode} and left no archive {archive}")


def write_class_path(jars: list[Path], target: Path) -> None:
    """A jar whose manifest names ``jars``, relative to its own folder: archives know no other names."""
    line = "Class-Path: " + " ".join(str(jar.relative_to(target.parent)) for jar in jars)
    folded = [line[:_LINE], *(f" {line[at : at + _LINE - 1]}" for at in range(_LINE, len(line), _LINE - 1))]
    with zipfile.ZipFile(target, "w") as written:
        entry = zipfile.ZipInfo("META-INF/MANIFEST.MF", date_time=_EPOCH)
        written.writestr(entry, "\r\n".join(["Manifest-Version: 1.0", *folded, "", ""]))


def start_gateway(jars: Path, class_path: Path, archive: Path, connection: Path) -> subprocess.Popen[bytes]:
    """The JVM that PySpark would start, with a class path of one jar; it writes the archive when it ends."""
    settings = {
        "spark.master": "local[2]",
        "spark.driver.host": "127.0.0.1",
        "spark.driver.bindAddress": "127.0.0.1",
        "spark.ui.enabled": "false",
        # Each task of a shuffle keeps a file open for each partition, and builds may open few
        "spark.sql.shuffle.partitions": "2",
        "spark.driver.extraClassPath": str(class_path),
        "spark.driver.defaultJavaOptions": f"-XX:ArchiveClassesAtExit={archive}",
    }
    options = [word for key, value in settings.items() for word in ("--conf", f"{key}={value}")]
    submit = ["org.apache.spark.launcher.Main", "org.apache.spark.deploy.SparkSubmit", *options, "pyspark-shell"]
    launcher = ["java", "-cp", f"{jars}/*", *submit]
    (core,) = jars.glob("spark-core_*.jar")
    environment = {
        **os.environ,
        "SPARK_HOME": str(jars.parent),
        "SPARK_LOCAL_IP": "127.0.0.1",
        "SPARK_SCALA_VERSION": core.name.removeprefix("spark-core_").partition("-")[0],
        "_PYSPARK_DRIVER_CONN_INFO_PATH": str(connection),
    }
    shown = subprocess.run(launcher, check=True, stdout=subprocess.PIPE, env=environment).stdout.decode()
    command = [word.strip() for word in shown.split("\0") if word.strip()]
    command[command.index("-cp") + 1] = str(class_path)
    return subprocess.Popen(command, stdin=subprocess.PIPE, env=environment)


def connect(gateway: subprocess.Popen[bytes], connection: Path) -> None:
    """Tell PySpark where the JVM listens."""
    end = time.monotonic() + _SECONDS
    while not connection.exists():
        if gateway.poll() is not None or time.monotonic() > end:
            raise SystemExit("the JVM did not start")
        time.sleep(0.1)
    with connection.open("rb") as connected:
        port, length = struct.unpack("!ii", connected.read(8))
        os.environ["PYSPARK_GATEWAY_PORT"] = str(port)
        os.environ["PYSPARK_GATEWAY_SECRET"] = connected.read(length).decode()


def exercise(folder: Path) -> None:
    """What drivers do: read every format, convert, hand batches to Python, collect, sort and join."""
    spark = SparkSession.builder.getOrCreate()
    numbers = spark.range(1000).selectExpr("id", "cast(id as string) as name", "current_timestamp() as at")
    for kind in ("csv", "json", "parquet", "orc"):
        path = str(folder / kind)
        numbers.write.format(kind).save(path)
        read = spark.read.format(kind).schema(numbers.schema).load(path)
        typed = read.selectExpr("id", "try_cast(name as int) as number", "md5(name) as digest", "at")
        typed.where("number > 5").mapInArrow(passed_on, typed.schema).toArrow()
    spark.read.text(str(folder / "csv")).selectExpr("from_csv(value, 'a int, b string') as r").collect()
    numbers.join(numbers.select("id"), "id").groupBy("name").count().orderBy("name").collect()
    numbers.rdd.map(lambda row: row.id).repartition(2).count()
    spark.createDataFrame([(1, "a")], "id long, name string").collect()
    spark.stop()


def passed_on(batches: Iterable[pa.RecordBatch]) -> Iterable[pa.RecordBatch]:
    """A kernel that changes nothing."""
    yield from batches


if __name__ == "__main__":
    main()
