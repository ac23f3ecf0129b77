"""No secret of a Warehouse, and no value of a row that does not fit, is in anything that people or executors get.

The secrets are real ones: of a PostgreSQL with a password and of a REST catalog with a token.
"""

from __future__ import annotations

import json
import logging
import pickle
from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path

import pyarrow as pa
import pytest
from pyiceberg.catalog import Catalog
from pyspark.sql import SparkSession
from skipstone.query.pinned import pin_source
from skipstone.runs.load import run_load
from skipstone.runs.main import run_app
from skipstone.runs.reporting.report import Reporter
from skipstone.scrubbing import MASK, ScrubbingFormatter, scrubbed
from skipstone.tables.catalogs import open_catalog
from skipstone_core.contract.reports import EXIT_UNAVAILABLE, JobReport
from skipstone_core.contract.requests import (
    CatalogRef,
    CatalogType,
    JobRequest,
    LoadTask,
    RunKind,
    SourceFormat,
    SourceSpec,
    TableRef,
    WarehouseRef,
)
from skipstone_core.errors import BadSpec

from tests.spark.lake import ref_of
from tests.spark.postgres import PASSWORD, USER, postgres
from tests.spark.restserver import rest_catalog

TOKEN = "canary-token-5e1f"
VALUE = "canary-value-77"
ROWS = pa.schema([pa.field("id", pa.int64())])


@pytest.fixture(scope="module")
def servers(tmp_path_factory: pytest.TempPathFactory) -> Iterator[dict[str, CatalogRef]]:
    """A catalog of each kind that has secrets."""
    with postgres() as database, rest_catalog(tmp_path_factory.mktemp("rest")) as address:
        uri = f"postgresql://127.0.0.1:{database.port}/postgres"
        rest = CatalogRef(type=CatalogType.REST, uri=address, allow_plaintext_credentials=True)
        yield {"sql": CatalogRef(type=CatalogType.SQL, uri=uri), "rest": rest}


@pytest.fixture(params=["sql", "rest"])
def home(
    request: pytest.FixtureRequest,
    servers: dict[str, CatalogRef],
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
) -> WarehouseRef:
    """A Warehouse of each kind; the environment is that of its pods."""
    monkeypatch.setenv("SKIPSTONE_CATALOG_USER", USER)
    monkeypatch.setenv("SKIPSTONE_CATALOG_PASSWORD", PASSWORD)
    monkeypatch.setenv("SKIPSTONE_CATALOG_TOKEN", TOKEN)
    return WarehouseRef(name="wh", root=str(tmp_path), catalog=servers[request.param])


@pytest.fixture
def catalog(home: WarehouseRef) -> Iterator[Catalog]:
    """The open catalog with the empty table ``ns.t``."""
    opened = open_catalog(home)
    opened.create_namespace_if_not_exists("ns")
    opened.create_table(("ns", "t"), ROWS, properties={"format-version": "2"}, location=f"file://{home.root}/ns/t")
    yield opened
    opened.drop_table(("ns", "t"))
    opened.close()


@pytest.fixture
def log(caplog: pytest.LogCaptureFixture, monkeypatch: pytest.MonkeyPatch) -> pytest.LogCaptureFixture:
    """What is logged, as runs write it; all tests of the process share the handler."""
    monkeypatch.setattr(caplog.handler, "formatter", ScrubbingFormatter("%(message)s"))
    # PySpark gives it a formatter of its own at each phase of a test, once an error of SQL was logged in the process.
    monkeypatch.setattr(caplog.handler, "setFormatter", lambda _: None)
    return caplog


def forms(text: str) -> tuple[str, ...]:
    """A secret as it is, and as it is written in addresses."""
    return (text, text.replace(" ", "%20"), text.replace(" ", "+"))


SECRETS = (*forms(PASSWORD), TOKEN)


def leaks(text: str | bytes) -> list[str]:
    """The secrets in ``text``."""
    shown = text.decode("latin-1") if isinstance(text, bytes) else text
    return [secret for secret in SECRETS if secret in shown]


def request_for(home: WarehouseRef, ref: TableRef, path: str) -> JobRequest:
    """A load of a file."""
    uid = "a1b2c3d4-0000-4000-8000-000000000009"
    return JobRequest(
        kind=RunKind.LOAD,
        run_id="a1b2c3d4-1",
        attempt=1,
        warehouse=home,
        owner_kind="LoadJob",
        owner_name="load",
        owner_uid=uid,
        txn=uid,
        table=ref,
        load=LoadTask(source=SourceSpec(format=SourceFormat.CSV, paths=(path,), options={"header": "true"})),
    )


def test_what_travels_to_executors_holds_no_credentials(catalog: Catalog) -> None:
    table = catalog.load_table(("ns", "t"))
    made = [table.io, catalog.create_table_transaction(("ns", "u"), ROWS)._table.io]
    assert [leaks(pickle.dumps(io)) for io in made] == [[], []]
    assert [leaks(repr(io.properties)) for io in made] == [[], []]


def test_a_failing_run_shows_no_secret_and_no_value_anywhere(
    home: WarehouseRef,
    catalog: Catalog,
    spark: SparkSession,
    tmp_path_factory: pytest.TempPathFactory,
    log: pytest.LogCaptureFixture,
) -> None:
    (Path(home.root) / "bad.csv").write_text(f"id\n1\n{VALUE}\n")
    request = request_for(home, ref_of(catalog.load_table(("ns", "t"))), "bad.csv")
    folder = tmp_path_factory.mktemp("conf")
    (folder / "request.json").write_text(request.to_json())
    environment = {"SKIPSTONE_REQUEST": str(folder / "request.json"), "SKIPSTONE_REPORT": str(folder / "report.json")}
    with log.at_level(logging.DEBUG):
        assert run_app(RunKind.LOAD, run_load, environment) == 65
    report = (folder / "report.json").read_text()
    assert "'bad.csv': column 'id': the value is not of type" in JobReport.from_json(report).message
    conf = json.dumps(spark.sparkContext.getConf().getAll())
    shown = {"report": report, "request": request.to_json(), "log": log.text, "Spark configuration": conf}
    assert {place: found for place, text in shown.items() if (found := leaks(text))} == {}
    assert VALUE not in report


def test_a_secret_that_an_error_quotes_is_masked(
    home: WarehouseRef,
    tmp_path_factory: pytest.TempPathFactory,
    log: pytest.LogCaptureFixture,
) -> None:
    def fail(request: JobRequest, reporter: Reporter) -> JobReport:
        try:
            raise ValueError(f"token={TOKEN}")
        except ValueError as error:
            raise RuntimeError(
                f"could not connect to postgresql://me:{forms(PASSWORD)[1]}@h with {PASSWORD}"
            ) from error

    folder = tmp_path_factory.mktemp("conf")
    request = request_for(home, TableRef(namespace="ns", name="t", uid="u"), "x.csv")
    (folder / "request.json").write_text(request.to_json())
    environment = {"SKIPSTONE_REQUEST": str(folder / "request.json"), "SKIPSTONE_REPORT": str(folder / "report.json")}
    run_app(RunKind.LOAD, fail, environment)
    report = JobReport.from_json((folder / "report.json").read_text())
    assert (leaks(report.message), leaks(log.text)) == ([], [])
    assert MASK in report.message and MASK in log.text


def test_the_data_source_opens_the_address_as_documented_and_does_not_show_it(
    home: WarehouseRef, catalog: Catalog
) -> None:
    if home.catalog.type is not CatalogType.SQL:
        return
    uri = home.catalog.uri.replace("//", f"//{USER}:{forms(PASSWORD)[1]}@")
    pinned = pin_source({"path": "ns.t", "catalog": "skipstone", "catalog.type": "sql", "catalog.uri": uri})
    assert pinned.table().schema().as_arrow().names == ROWS.names
    assert leaks(repr(pinned)) == []


@pytest.mark.parametrize("password", ["", "canary wrong"])
def test_a_login_that_is_refused_shows_no_secret(
    home: WarehouseRef, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, password: str, log: pytest.LogCaptureFixture
) -> None:
    if home.catalog.type is not CatalogType.SQL:
        return
    monkeypatch.setenv("SKIPSTONE_CATALOG_PASSWORD", password)
    request = request_for(home, TableRef(namespace="ns", name="t", uid="u"), "x.csv")
    (tmp_path / "request.json").write_text(request.to_json())
    environment = {
        "SKIPSTONE_REQUEST": str(tmp_path / "request.json"),
        "SKIPSTONE_REPORT": str(tmp_path / "report.json"),
    }
    with log.at_level(logging.DEBUG):
        assert run_app(RunKind.LOAD, run_load, environment) == EXIT_UNAVAILABLE
    report = JobReport.from_json((tmp_path / "report.json").read_text())
    assert "refused the credentials of spec.credentialsSecretRef: connection to server at" in report.message
    shown = report.to_json() + log.text + request.to_json()
    assert leaks(shown) == [] and "canary wrong" not in shown


def test_credentials_do_not_go_over_http_unless_that_is_wished(home: WarehouseRef) -> None:
    if home.catalog.type is CatalogType.SQL:
        return
    for private in (
        replace(home.catalog, allow_plaintext_credentials=False),
        replace(
            home.catalog,
            uri="https://127.0.0.1:9",
            properties={"oauth2-server-uri": "http://127.0.0.1:9"},
            allow_plaintext_credentials=False,
        ),
    ):
        with pytest.raises(BadSpec, match="would carry credentials without encryption") as caught:
            open_catalog(replace(home, catalog=private))
        assert leaks(str(caught.value)) == []


def test_only_credentials_are_masked() -> None:
    environment = {
        "SKIPSTONE_CATALOG_USER": "skipstone",
        "SKIPSTONE_CATALOG_PASSWORD": "hunter22",
        "SKIPSTONE_CATALOG_CREDENTIAL": "client:s3cret",
        "AWS_SECRET_ACCESS_KEY": "wJal+r/X",
        "AWS_REGION": "eu-west-1",
        "HOME": "/scratch",
    }
    text = "skipstone hunter22 client:s3cret s3cret wJal%2Br%2FX eu-west-1 /scratch"
    assert scrubbed(text, environment) == f"skipstone {MASK} {MASK} {MASK} {MASK} eu-west-1 /scratch"
