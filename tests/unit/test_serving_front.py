"""The front of an Sql catalog, for clients that know Iceberg's REST protocol: what it tells, and to whom."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import pyarrow as pa
import pytest
import requests
from pyiceberg.catalog import Catalog, load_catalog
from skipstone.serving.server import Serving
from skipstone.tables.catalogs import open_catalog
from skipstone_core.contract.planning import SETTINGS_VARIABLE, TOKENS_VARIABLE, PlanningMode, PlanningSettings
from skipstone_core.contract.requests import CatalogRef, CatalogType, WarehouseRef
from skipstone_core.errors import BadSpec
from skipstone_core.ids import INDEX_DEFINITION_PROPERTY, index_table_name

from tests.unit.serving_bed import SCHEMA, filled, serving, sql_settings

TOKEN, OTHER = "first-token-of-many", "second-token-of-many"
BEARER = {"authorization": f"Bearer {TOKEN}"}
INDEX = index_table_name("t", "by-id", "12345678-aaaa")


@pytest.fixture(scope="module")
def root(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return tmp_path_factory.mktemp("front")


@pytest.fixture(scope="module")
def own(root: Path) -> Iterator[Catalog]:
    """The catalog itself, with ``ns.t``, a table of an index beside it, and nested namespaces."""
    catalog = open_catalog(sql_settings(root).warehouse)
    filled(catalog, "t")
    catalog.create_table(("ns", INDEX), schema=SCHEMA)
    for levels in (("a",), ("a", "b"), ("a", "b", "c")):
        catalog.create_namespace(levels)
    catalog.create_table(("a", "b", "moved_index"), schema=SCHEMA, properties={INDEX_DEFINITION_PROPERTY: "x"})
    filled(catalog, "big", files=5)
    catalog.create_table(("a", "b", "u"), schema=SCHEMA)
    yield catalog
    catalog.close()


@pytest.fixture(scope="module")
def server(own: Catalog, root: Path) -> Iterator[str]:
    settings = sql_settings(root, mode=PlanningMode.DEFAULT, files_per_page=2)
    with serving(settings, (TOKEN, OTHER)) as address:
        yield address


@pytest.fixture
def client(server: str) -> Catalog:
    return load_catalog("c", type="rest", uri=server, token=OTHER)


def test_pyiceberg_finds_and_reads_tables_by_rest(client: Catalog) -> None:
    assert client.list_namespaces() == [("a",), ("ns",)]
    assert client.list_namespaces(("a", "b")) == [("a", "b", "c")]
    assert ("a", "b", "u") in client.list_tables(("a", "b"))
    assert client.list_tables("ns") == [("ns", "big"), ("ns", "t")]
    assert (client.namespace_exists("a"), client.namespace_exists("no")) == (True, False)
    assert (client.table_exists("ns.t"), client.table_exists("ns.no")) == (True, False)
    rows = client.load_table("ns.big").scan("id >= 3").to_arrow()
    assert sorted(rows["id"].to_pylist()) == [3, 4, 100, 101, 102, 103, 104]
    assert client.load_table(("a", "b", "u")).scan().to_arrow().num_rows == 0
    with pytest.raises(NotImplementedError, match="POST /v1/"):
        client.load_table("ns.t").append(pa.table({"id": [1], "s": ["x"]}))


@pytest.mark.parametrize("path", [f"ns/tables/{INDEX}", "a%1Fb/tables/moved_index"], ids=["named", "moved"])
def test_tables_of_indexes_are_not_there(server: str, path: str) -> None:
    where = f"{server}/v1/namespaces/{path}"
    for answer in (
        requests.get(where, headers=BEARER, timeout=30),
        requests.post(f"{where}/plan", json={}, headers=BEARER, timeout=30),
    ):
        assert (answer.status_code, answer.json()["error"]["type"]) == (404, "NoSuchTableException")


@pytest.mark.parametrize(
    "headers",
    [
        {},
        {"authorization": "Bearer"},
        {"authorization": "Bearer wrong"},
        {"authorization": f"Basic {TOKEN}"},
        {"authorization": f"Bearer {TOKEN} {OTHER}"},
        {"authorization": f"Bearer {TOKEN[:-1]}"},
    ],
)
@pytest.mark.parametrize(
    ("method", "path"),
    [
        ("GET", "/v1/config"),
        ("GET", "/v1/namespaces"),
        ("HEAD", "/v1/namespaces/ns/tables/t"),
        ("POST", "/v1/namespaces/ns/tables/t/plan"),
        ("POST", "/v1/namespaces/ns/tables/t/tasks"),
        ("DELETE", "/v1/namespaces/ns"),
    ],
)
def test_nobody_is_answered_without_a_token(server: str, headers: dict[str, str], method: str, path: str) -> None:
    answer = requests.request(method, server + path, headers=headers, timeout=30)
    assert (answer.status_code, answer.headers["www-authenticate"]) == (401, "Bearer")


def test_a_copy_that_is_still_right_is_not_sent_again(server: str, own: Catalog) -> None:
    path = f"{server}/v1/namespaces/ns/tables/copied"
    table = filled(own, "copied", files=1)
    first = requests.get(path, headers=BEARER, timeout=30)
    assert first.json()["metadata-location"] == table.metadata_location
    assert first.json()["metadata"]["table-uuid"] == str(table.metadata.table_uuid)
    tagged = {**BEARER, "if-none-match": first.headers["etag"]}
    assert requests.get(path, headers=tagged, timeout=30).status_code == 304
    table.append(pa.table({"id": [7], "s": ["x"]}, schema=SCHEMA))
    assert requests.get(path, headers=tagged, timeout=30).status_code == 200


def test_what_is_gone_between_a_plan_and_its_pages_is_an_error(server: str, own: Catalog) -> None:
    table = filled(own, "moving", files=4)

    def asked(name: str, part: str, body: dict[str, object]) -> requests.Response:
        path = f"{server}/v1/namespaces/ns/tables/{name}/{part}"
        return requests.post(path, json=body, headers=BEARER, timeout=30)

    def told(answer: requests.Response) -> tuple[int, str]:
        return answer.status_code, answer.json()["error"]["type"]

    planned = asked("moving", "plan", {}).json()
    page = {"plan-task": planned["plan-tasks"][0]}
    rest = asked("moving", "tasks", page).json()["file-scan-tasks"]
    assert len({task["data-file"]["file-path"] for task in planned["file-scan-tasks"] + rest}) == 4

    table.append(pa.table({"id": [7], "s": ["x"]}, schema=SCHEMA))  # the page is still of the old snapshot
    assert asked("moving", "tasks", page).json()["file-scan-tasks"] == rest

    own.rename_table("ns.moving", "ns.moved")
    assert told(asked("moving", "tasks", page)) == (404, "NoSuchTableException")
    assert asked("moved", "tasks", page).json()["file-scan-tasks"] == rest

    moved = own.load_table("ns.moved")
    old = [snapshot.snapshot_id for snapshot in moved.metadata.snapshots[:-1]]
    moved.maintenance.expire_snapshots().by_ids(old).commit()
    assert told(asked("moved", "tasks", page)) == (404, "NoSuchPlanTaskException")
    assert told(asked("moved", "plan", {"snapshot-id": table.metadata.snapshots[0].snapshot_id})) == (
        404,
        "NoSuchSnapshotException",
    )

    own.drop_table("ns.moved")
    filled(own, "moved", files=4)  # another table of that name
    assert told(asked("moved", "tasks", page)) == (400, "BadRequestException")


def test_any_replica_answers_for_a_plan_of_another(own: Catalog, root: Path) -> None:
    settings = sql_settings(root, files_per_page=2)
    with serving(settings, (TOKEN,)) as one, serving(settings, (TOKEN,)) as other:
        path = "/v1/namespaces/ns/tables/big"
        planned = requests.post(f"{one}{path}/plan", json={}, headers=BEARER, timeout=30).json()
        pages = [
            requests.post(f"{other}{path}/tasks", json={"plan-task": token}, headers=BEARER, timeout=30).json()
            for token in planned["plan-tasks"]
        ]
    tasks = [task for page in (planned, *pages) for task in page["file-scan-tasks"]]
    assert len({task["data-file"]["file-path"] for task in tasks}) == len(tasks) == 5


SQL = CatalogRef(type=CatalogType.SQL)
SIGNED = CatalogRef(type=CatalogType.REST, uri="https://catalog", properties={"rest.sigv4-enabled": "true"})
PLAIN = CatalogRef(type=CatalogType.REST, uri="http://catalog")


@pytest.mark.parametrize(
    ("catalog", "tokens", "said"),
    [
        (SQL, "", "tokensSecretRef"),
        (SQL, f"{TOKEN} a passphrase", "needs 16 or more ASCII characters"),
        (SQL, "töken-of-many-letters", "needs 16 or more ASCII characters"),
        (PLAIN, "", "use https://"),
        (SIGNED, "", "signatures are for one address"),
    ],
    ids=["no tokens", "short tokens", "odd tokens", "plaintext", "signed"],
)
def test_settings_that_cannot_be_served_are_refused(
    tmp_path: Path, catalog: CatalogRef, tokens: str, said: str
) -> None:
    path = tmp_path / "settings.json"
    path.write_text(PlanningSettings(warehouse=WarehouseRef(name="w", root="/w", catalog=catalog)).to_json())
    with pytest.raises(BadSpec, match=said):
        Serving.of({SETTINGS_VARIABLE: str(path), TOKENS_VARIABLE: tokens})
