"""The bill of materials: all that the lock gives an image, and every jar of Spark."""

from __future__ import annotations

import json
import subprocess
import sys
from pathlib import Path
from typing import Any

import pyspark

REPOSITORY = Path(__file__).resolve().parents[2]


def test_each_image_has_its_distributions_and_spark_its_jars(tmp_path: Path) -> None:
    subprocess.run([sys.executable, REPOSITORY / "scripts" / "sbom.py", tmp_path], check=True, timeout=120)
    bills = {path.name: json.loads(path.read_text()) for path in tmp_path.iterdir()}
    assert sorted(bills) == ["skipstone-operator.cdx.json", "skipstone-spark.cdx.json"]
    assert {bill["bomFormat"] for bill in bills.values()} == {"CycloneDX"}
    operator, spark = bills["skipstone-operator.cdx.json"], bills["skipstone-spark.cdx.json"]
    assert {"kopf", "kubernetes"} <= names(operator)
    assert {"pyspark", "pyarrow", "pyiceberg"} <= names(spark)
    assert not {"pyspark", "pytest"} & names(operator)
    found = {part["bom-ref"].removeprefix("jar:") for part in spark["components"] if "jar:" in part["bom-ref"]}
    assert found == {path.name for path in (Path(pyspark.__file__).parent / "jars").glob("*.jar")}
    assert len({part["bom-ref"] for part in spark["components"]}) == len(spark["components"])


def names(bill: dict[str, Any]) -> set[str]:
    return {part["name"] for part in bill["components"]}
