"""A bucket behind TLS whose certificate only an authority of the Warehouse's own has signed."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path

import pytest
from skipstone.storage.buckets.objects import ObjectStorage
from skipstone_core.contract.places import S3Ref
from skipstone_core.errors import DependencyUnavailable

from tests.s3server import OWNER, REGION, s3_server
from tests.spark.jars import s3a_jars
from tests.spark.postgres import make_certificate
from tests.storages import credentials

ENTRYPOINT = Path(__file__).parents[2] / "spark_apps" / "entrypoint.sh"
#: What a driver reaches a bucket by: the port, Arrow, and the JVM.
SCRIPT = """
import sys
from pyspark.sql import SparkSession
from skipstone.storage.buckets.objects import ObjectStorage
from skipstone.tables.storage import storage_io
from skipstone_core.contract.places import S3Ref
place = S3Ref(bucket="bucket", endpoint=sys.argv[1], region=sys.argv[2], path_style_access=True)
storage = ObjectStorage(place)
assert storage.create("in/a.txt", b"line") == b"line"
io = storage_io({"s3.endpoint": place.endpoint, "s3.region": place.region}, "s3://bucket")
assert io.new_input("s3://bucket/in/a.txt").open().read() == b"line"
spark = SparkSession.builder.master("local[1]").config("spark.driver.extraClassPath", sys.argv[3])
spark = spark.config("spark.ui.enabled", "false").config("spark.driver.bindAddress", "127.0.0.1").getOrCreate()
rows = spark.read.options(**storage.hadoop_settings()).text(storage.address("in/a.txt")).collect()
assert [row.value for row in rows] == ["line"]
"""


def identity(folder: Path) -> tuple[Path, Path, Path]:
    """An authority, and a certificate of ``localhost`` that it signed, with its key."""

    def openssl(*words: str | Path) -> None:
        subprocess.run(["openssl", *words], check=True, capture_output=True, cwd=folder, timeout=300)

    new: list[str | Path] = ["-newkey", "ec", "-pkeyopt", "ec_paramgen_curve:P-256", "-nodes"]
    openssl("req", "-x509", *new, "-days", "2", "-subj", "/CN=authority", "-keyout", "ca.key", "-out", "ca.crt")
    openssl("req", *new, "-subj", "/CN=localhost", "-keyout", "server.key", "-out", "server.csr")
    (folder / "names").write_text("subjectAltName=DNS:localhost\nbasicConstraints=CA:FALSE\n")
    signed = ["-req", "-in", "server.csr", "-CA", "ca.crt", "-CAkey", "ca.key", "-CAcreateserial", "-days", "2"]
    openssl("x509", *signed, "-extfile", "names", "-out", "server.crt")
    return folder / "ca.crt", folder / "server.crt", folder / "server.key"


def java_home() -> Path:
    found = subprocess.run(
        ["bash", "-c", 'readlink -f "$(command -v java)"'], capture_output=True, text=True, check=True
    )
    return Path(found.stdout.strip()).parents[1]


def test_an_authority_of_the_warehouse_is_trusted_by_all_that_reach_a_bucket(tmp_path: Path) -> None:
    authority, certificate, key = identity(tmp_path)
    bundle = tmp_path / "bundle.crt"
    (tmp_path / "other").mkdir()
    bundle.write_bytes(make_certificate(tmp_path / "other")[0].read_bytes() + authority.read_bytes())
    environment = {name: value for name, value in os.environ.items() if name != "PYSPARK_SUBMIT_ARGS"}
    environment |= {
        "JAVA_HOME": str(java_home()),
        "AWS_ACCESS_KEY_ID": OWNER.access,
        "AWS_SECRET_ACCESS_KEY": OWNER.secret,
        "SYSTEM_CERTIFICATES": str(tmp_path / "none.crt"),
        "SKIPSTONE_CA_BUNDLE": str(bundle),
    }
    (tmp_path / "none.crt").touch()
    jars = ":".join(map(str, s3a_jars()))
    with s3_server(tmp_path / "s3", (certificate, key)) as server:
        server.make_bucket("bucket")
        place = S3Ref(bucket="bucket", endpoint=server.endpoint, region=REGION, path_style_access=True)
        with credentials(OWNER), pytest.raises(DependencyUnavailable, match="no trusted authority signed"):
            ObjectStorage(place, {"max_retries": 0}).look("a")
        command = ["bash", ENTRYPOINT, sys.executable, "-c", SCRIPT, server.endpoint, REGION, jars]
        ended = subprocess.run(command, env=environment, capture_output=True, text=True, timeout=800, check=False)
    assert ended.returncode == 0, ended.stderr


@pytest.mark.parametrize(
    ("content", "why"),
    [
        (None, "there is no such file"),
        ("", "there are none"),
        ("no certificate\n", "there are none"),
        ("-----BEGIN CERTIFICATE-----\nAAAA\n-----END CERTIFICATE-----\n", "number 1 is no certificate"),
    ],
)
def test_a_bundle_without_certificates_is_refused_in_a_sentence(tmp_path: Path, content: str | None, why: str) -> None:
    bundle, system = tmp_path / "bundle.crt", tmp_path / "none.crt"
    system.touch()
    if content is not None:
        bundle.write_text(content)
    told = {"JAVA_HOME": str(java_home()), "SYSTEM_CERTIFICATES": str(system), "SKIPSTONE_CA_BUNDLE": str(bundle)}
    ended = subprocess.run(
        ["bash", ENTRYPOINT, "echo", "trusted"], env=os.environ | told, capture_output=True, text=True, check=False
    )
    assert (ended.returncode, ended.stdout) == (1, "")
    way_out = "put PEM certificates of authorities there"
    assert ended.stderr == f"the certificates in {bundle} cannot be used: {why}; {way_out}\n"
