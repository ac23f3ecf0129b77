"""Bills of materials: all that is pinned for an image, and all that a built image holds."""

from __future__ import annotations

import json
import subprocess
import sys
import zipfile
from pathlib import Path
from typing import Any

import pyspark
import pytest

from tests.cluster import bills

REPOSITORY = Path(__file__).resolve().parents[2]


def test_each_image_has_its_distributions_and_spark_its_jars(tmp_path: Path) -> None:
    subprocess.run([sys.executable, REPOSITORY / "scripts" / "sbom.py", tmp_path], check=True, timeout=300)
    bills = {path.name: json.loads(path.read_text()) for path in tmp_path.iterdir()}
    assert sorted(bills) == ["skipstone-operator.cdx.json", "skipstone-spark.cdx.json"]
    assert {bill["bomFormat"] for bill in bills.values()} == {"CycloneDX"}
    operator, spark = bills["skipstone-operator.cdx.json"], bills["skipstone-spark.cdx.json"]
    assert {"kopf", "kubernetes"} <= names(operator)
    assert {"pyspark", "pyarrow", "pyiceberg"} <= names(spark)
    assert not {"pyspark", "pytest"} & names(operator)
    found = {part["bom-ref"].removeprefix("jar:") for part in spark["components"] if "jar:" in part["bom-ref"]}
    assert found == {path.name for path in (Path(pyspark.__file__).parent / "jars").glob("*.jar")}
    assert {"iceberg-spark-runtime-4.1_2.13", "hadoop-aws"} <= names(spark)
    assert len({part["bom-ref"] for part in spark["components"]}) == len(spark["components"])


DPKG = """Package: gone
Status: deinstall ok config-files
Architecture: amd64
Version: 1

Package: libc6
Status: install ok installed
Architecture: amd64
Version: 2.36-9+deb12u9
Description: text
 that goes on
"""


def write(layer: Path, path: str, content: str) -> None:
    (layer / path).parent.mkdir(parents=True, exist_ok=True)
    (layer / path).write_text(content)


@pytest.fixture
def layers(tmp_path: Path) -> list[Path]:
    """The unpacked layers of an image."""
    lower, upper = tmp_path / "lower", tmp_path / "upper"
    write(lower, "var/lib/dpkg/status", DPKG.replace("2.36", "1.0"))
    write(upper, "var/lib/dpkg/status", DPKG)
    write(
        lower,
        "opt/lib/python3.11/site-packages/Py_Thing-2.dist-info/METADATA",
        "Name: Py_Thing\nVersion: 2\n\nName: no",
    )
    write(upper, "jars/none.txt", "")
    with zipfile.ZipFile(upper / "jars" / "a-b_2.13-4.1-1.0.jar", "w") as jar:
        jar.writestr("META-INF/maven/org.example/a-b_2.13-4.1/pom.properties", "")
    return [lower, upper]


def test_a_built_image_tells_its_packages_distributions_and_jars(layers: list[Path]) -> None:
    bill = bills.build_bill("skipstone-x", "localhost/skipstone-x:12", layers)
    assert (bill["bomFormat"], bill["specVersion"], bill["metadata"]["component"]["version"]) == (
        "CycloneDX",
        "1.5",
        "12",
    )
    assert [(part["name"], part["version"], part["purl"]) for part in bill["components"]] == [
        ("a-b_2.13-4.1", "1.0", "pkg:maven/org.example/a-b_2.13-4.1@1.0"),
        ("Py_Thing", "2", "pkg:pypi/py-thing@2"),
        ("libc6", "2.36-9+deb12u9", "pkg:deb/debian/libc6@2.36-9%2Bdeb12u9?arch=amd64"),
    ]
    assert [len(part["hashes"][0]["content"]) for part in bill["components"] if "hashes" in part] == [64]


def test_an_image_that_did_not_change_keeps_its_bill(
    layers: list[Path], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    asked: list[str] = []

    def look(tag: str) -> list[Path]:
        asked.append(tag)
        return layers

    monkeypatch.setattr(bills, "layer_folders", look)
    for tag in ("localhost/skipstone-x:1", "localhost/skipstone-x:1", "localhost/skipstone-x:2"):
        bills.write_bills({"skipstone-x": tag}, tmp_path / "sbom")
    assert asked == ["localhost/skipstone-x:1", "localhost/skipstone-x:2"]
    (bill,) = (tmp_path / "sbom").iterdir()
    assert json.loads(bill.read_text())["metadata"]["component"]["version"] == "2"


def names(bill: dict[str, Any]) -> set[str]:
    return {part["name"] for part in bill["components"]}
