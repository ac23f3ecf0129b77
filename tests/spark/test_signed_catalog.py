"""A REST catalog that takes signed requests only: who verifies each signature is the proxy before a real catalog."""

from __future__ import annotations

import logging
from collections.abc import Callable, Iterator
from dataclasses import replace
from pathlib import Path

import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from pyiceberg.catalog import Catalog
from pyiceberg.table import Table
from skipstone.runs.check import run_check
from skipstone.runs.load import run_load
from skipstone.runs.main import run_app
from skipstone.runs.reporting.report import Reporter
from skipstone.scrubbing import ScrubbingFormatter
from skipstone.tables.catalogs import load_table, open_catalog
from skipstone.tables.committing.commits import CommitPorts, NoHooks, TableCommit, commit_table
from skipstone.tables.filesets import pin_table
from skipstone_core.contract.reports import EXIT_UNAVAILABLE, JobReport, RunOutcome
from skipstone_core.contract.requests import (
    CatalogRef,
    CatalogType,
    JobRequest,
    LoadTask,
    RunKind,
    SourceFormat,
    SourceSpec,
    WarehouseRef,
)
from skipstone_core.errors import BadSpec, DependencyUnavailable
from skipstone_core.history.commits import Committed

from tests.s3client import Keys
from tests.spark.lake import read_all, ref_of, write_files
from tests.spark.restserver import rest_catalog
from tests.spark.signedproxy import AHEAD, BEHIND, EXPIRED, REGION, ROLE, SERVICE, SignedProxy, signed_proxy

KEYS, TOKEN = Keys("canary-access-3c1d", "canary-secret-9b7e"), "canary-session-4f2a"
SIGNED = {"rest.sigv4-enabled": "true", "rest.signing-name": SERVICE, "rest.signing-region": REGION}
ROWS = pa.table({"id": pa.array([1, 2, 3], pa.int64())})
UID = "a1b2c3d4-0000-4000-8000-000000000009"


@pytest.fixture(scope="module")
def upstream(tmp_path_factory: pytest.TempPathFactory) -> Iterator[str]:
    """A REST catalog for this module."""
    with rest_catalog(tmp_path_factory.mktemp("rest")) as address:
        yield address


@pytest.fixture
def proxy(upstream: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[SignedProxy]:
    """The proxy, and the environment of pods with its keys and no others."""
    monkeypatch.setenv("AWS_EC2_METADATA_DISABLED", "true")
    for name in ("AWS_CONFIG_FILE", "AWS_SHARED_CREDENTIALS_FILE"):
        monkeypatch.setenv(name, str(tmp_path / "none"))
    monkeypatch.setenv("AWS_ACCESS_KEY_ID", KEYS.access)
    monkeypatch.setenv("AWS_SECRET_ACCESS_KEY", KEYS.secret)
    monkeypatch.setenv("AWS_SESSION_TOKEN", TOKEN)
    with signed_proxy(upstream, KEYS, TOKEN) as found:
        yield found


@pytest.fixture
def home(proxy: SignedProxy, tmp_path: Path) -> WarehouseRef:
    """A Warehouse behind the proxy."""
    catalog = CatalogRef(type=CatalogType.REST, uri=proxy.address, properties=SIGNED)
    return WarehouseRef(name="wh", root=str(tmp_path), catalog=catalog)


@pytest.fixture
def catalog(home: WarehouseRef) -> Iterator[Catalog]:
    """The open catalog, without a table at the end."""
    opened = open_catalog(home)
    yield opened
    opened.drop_table(("a b", "t"))
    opened.close()


@pytest.fixture
def table(catalog: Catalog, home: WarehouseRef) -> Table:
    """An empty table in a namespace whose name is escaped in addresses."""
    catalog.create_namespace_if_not_exists("a b")
    place = f"file://{home.root}/t"
    return catalog.create_table(("a b", "t"), ROWS.schema, properties={"format-version": "2"}, location=place)


def request_for(home: WarehouseRef, kind: RunKind) -> JobRequest:
    """What a pod is asked."""
    return JobRequest(
        kind=kind, run_id="r-1", attempt=1, warehouse=home, owner_kind="LoadJob", owner_name="o", owner_uid=UID, txn=UID
    )


def test_a_table_is_loaded_and_read_by_signed_requests_that_show_no_key(
    proxy: SignedProxy, home: WarehouseRef, table: Table, log: pytest.LogCaptureFixture
) -> None:
    pq.write_table(ROWS, Path(home.root) / "in.parquet")
    source = SourceSpec(format=SourceFormat.PARQUET, paths=("in.parquet",))
    request = replace(request_for(home, RunKind.LOAD), table=ref_of(table), load=LoadTask(source=source))
    with log.at_level(logging.DEBUG):
        report = run_load(request, Reporter(request))
    assert report.outcome is RunOutcome.COMMITTED
    assert read_all(load_table(open_catalog(home), ref_of(table)), ["id"]).num_rows == 3
    assert 403 not in {status for _, _, status in proxy.seen}
    shown = log.text + report.to_json() + request.to_json() + repr(sorted(table.io.properties.items()))
    assert [secret for secret in (KEYS.access, KEYS.secret, TOKEN) if secret in shown] == []


@pytest.fixture
def check(home: WarehouseRef, tmp_path: Path) -> Callable[[], tuple[int, str]]:
    """Gives exit code and message of a check run."""

    def checked() -> tuple[int, str]:
        (tmp_path / "request.json").write_text(request_for(home, RunKind.CHECK).to_json())
        files = {"SKIPSTONE_REQUEST": str(tmp_path / "request.json"), "SKIPSTONE_REPORT": str(tmp_path / "report.json")}
        code = run_app(RunKind.CHECK, run_check, files)
        return code, JobReport.from_json((tmp_path / "report.json").read_text()).message

    return checked


@pytest.fixture
def log(caplog: pytest.LogCaptureFixture, monkeypatch: pytest.MonkeyPatch) -> pytest.LogCaptureFixture:
    """What is logged, as runs write it; all tests of the process share the handler."""
    monkeypatch.setattr(caplog.handler, "formatter", ScrubbingFormatter("%(message)s"))
    # PySpark gives it a formatter of its own at each phase of a test, once an error of SQL was logged in the process.
    monkeypatch.setattr(caplog.handler, "setFormatter", lambda _: None)
    return caplog


@pytest.mark.parametrize(
    ("variable", "value", "said"),
    [
        ("AWS_SECRET_ACCESS_KEY", "canary-wrong", "does not match the signature you provided; check the keys of"),
        ("AWS_SESSION_TOKEN", "canary-other", "token included in the request is invalid; check the keys of"),
    ],
)
def test_keys_that_are_refused_are_told_by_the_check(
    check: Callable[[], tuple[int, str]], monkeypatch: pytest.MonkeyPatch, variable: str, value: str, said: str
) -> None:
    monkeypatch.setenv(variable, value)
    code, message = check()
    assert code == EXIT_UNAVAILABLE
    assert "refused the keys that signed a request: The" in message and said in message
    assert "rest.signing-region of spec.catalog.properties" in message
    assert [secret for secret in (KEYS.secret, TOKEN, value) if secret in message] == []


def test_a_session_that_has_expired_is_told(proxy: SignedProxy, check: Callable[[], tuple[int, str]]) -> None:
    proxy.says = EXPIRED
    code, message = check()
    assert code == EXIT_UNAVAILABLE
    assert f"{EXPIRED}; renew the keys of spec.credentialsSecretRef" in message


@pytest.mark.parametrize("said", [BEHIND, AHEAD], ids=["behind", "ahead"])
def test_a_clock_that_is_wrong_is_not_blamed_on_the_keys(
    proxy: SignedProxy, check: Callable[[], tuple[int, str]], said: str
) -> None:
    proxy.says = said
    code, message = check()
    assert code == EXIT_UNAVAILABLE
    assert f"{said}; set the clock of the node" in message
    assert "renew" not in message


def test_keys_of_a_role_sign_and_are_not_shown(
    proxy: SignedProxy,
    check: Callable[[], tuple[int, str]],
    log: pytest.LogCaptureFixture,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    for name in ("AWS_ACCESS_KEY_ID", "AWS_SECRET_ACCESS_KEY", "AWS_SESSION_TOKEN"):
        monkeypatch.delenv(name)
    monkeypatch.setenv("AWS_CONTAINER_CREDENTIALS_FULL_URI", f"{proxy.address}{ROLE}")
    proxy.keys, proxy.token = Keys("canary-role-access", "canary-role-secret"), "canary-role-session"
    with log.at_level(logging.DEBUG):
        code, message = check()
    assert (code, [status for _, path, status in proxy.seen if path != ROLE]) == (0, [200, 200])
    assert "CanonicalRequest" in log.text
    assert [secret for secret in ("canary-role",) if secret in log.text + message] == []


def test_missing_keys_are_told_with_the_field_that_gives_them(
    proxy: SignedProxy, check: Callable[[], tuple[int, str]], monkeypatch: pytest.MonkeyPatch
) -> None:
    for name in ("AWS_ACCESS_KEY_ID", "AWS_SECRET_ACCESS_KEY", "AWS_SESSION_TOKEN"):
        monkeypatch.delenv(name)
    code, message = check()
    assert code == EXIT_UNAVAILABLE
    assert "name AWS_ACCESS_KEY_ID and AWS_SECRET_ACCESS_KEY in spec.credentialsSecretRef.keys" in message
    assert proxy.seen == []


def test_a_missing_region_is_told_before_anything_is_sent(proxy: SignedProxy, home: WarehouseRef) -> None:
    unplaced = {name: value for name, value in SIGNED.items() if name != "rest.signing-region"}
    with pytest.raises(BadSpec, match=r"spec\.catalog\.properties: it needs rest\.signing-region when"):
        open_catalog(replace(home, catalog=replace(home.catalog, properties=unplaced)))
    assert proxy.seen == []


@pytest.mark.parametrize("status", [500, 503])
def test_only_our_own_loop_sends_a_commit_again(
    proxy: SignedProxy, catalog: Catalog, table: Table, status: int
) -> None:
    sent_before_look: list[int] = []

    class Counting(NoHooks):
        def before_swap(self, _: Table) -> None:
            sent_before_look.append(len(proxy.sent("POST", "/tables/t")))

    proxy.faults["POST"] = [status]
    change = TableCommit(pinned=pin_table(table), added=write_files(table, ROWS), txn=UID)
    ports = CommitPorts(hooks=Counting(), pause=lambda _: None)
    assert isinstance(commit_table(catalog, ref_of(table), change, ports), Committed)
    assert sent_before_look == [0, 1]
    assert proxy.sent("POST", "/tables/t") == [status, 200]


def test_a_question_that_is_not_answered_is_asked_once(proxy: SignedProxy, catalog: Catalog, table: Table) -> None:
    proxy.seen.clear()
    proxy.faults["GET"] = [503] * 20
    with pytest.raises(DependencyUnavailable, match="did not answer"):
        load_table(catalog, ref_of(table))
    proxy.faults.clear()
    assert proxy.sent("GET", "/tables/t") == [503]
