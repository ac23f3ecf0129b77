"""The server before a catalog: what is answered, what is sent on, and what is refused before anybody sees it."""

from __future__ import annotations

import json
import socket
import threading
import zlib
from collections.abc import Iterator
from contextlib import suppress
from pathlib import Path
from urllib.parse import quote, urlsplit

import pyarrow as pa
import pytest
import requests
from pyiceberg.catalog import Catalog, load_catalog
from skipstone.serving.transport import connections, intake
from skipstone.tables.catalogs import TOKEN_VARIABLE
from skipstone_core.contract.planning import PlanningMode, PlanningSettings

from tests.spark.restserver import rest_catalog
from tests.unit.serving_bed import SCHEMA, Guard, Trouble, error, exchange, filled, guard, rest_settings, serving

PLAN = "/v1/namespaces/ns/tables/t/plan"
OWN = "token-of-the-server"
SMUGGLED = "GET /v1/smuggled HTTP/1.1\r\nhost: h\r\n\r\n"


@pytest.fixture(scope="module", autouse=True)
def _own_token() -> Iterator[None]:
    """What the server shows the catalog for itself."""
    with pytest.MonkeyPatch.context() as patch:
        patch.setenv(TOKEN_VARIABLE, OWN)
        yield


@pytest.fixture(scope="module")
def upstream(tmp_path_factory: pytest.TempPathFactory) -> Iterator[tuple[str, Path]]:
    """A REST catalog with the tables ``t`` and ``other``, and its folder."""
    root = tmp_path_factory.mktemp("rest")
    with rest_catalog(root) as uri:
        own = load_catalog("own", type="rest", uri=uri)
        filled(own, "t")
        filled(own, "other", files=1)
        filled(own, "unseen", files=1)
        yield uri, root


@pytest.fixture(scope="module")
def between(upstream: tuple[str, Path]) -> Iterator[Guard]:
    """A guard before the catalog."""
    with guard(upstream[0]) as found:
        yield found


@pytest.fixture(scope="module")
def settings(between: Guard, upstream: tuple[str, Path]) -> PlanningSettings:
    """Of a server behind which the guard stands."""
    return rest_settings(between.address, upstream[1], upstream_timeout_seconds=1)


@pytest.fixture(scope="module")
def _server(settings: PlanningSettings) -> Iterator[str]:
    with serving(settings) as address:
        yield address


@pytest.fixture
def server(_server: str, between: Guard) -> Iterator[str]:
    """The server's address; the guard is as before at the end."""
    between.seen.clear()
    yield _server
    between.trouble, between.readers = lambda path: None, {}


def own_catalog(address: str, **properties: str) -> Catalog:
    return load_catalog("c", type="rest", uri=address, **properties)


# --- what is answered ---


def test_pyiceberg_reads_through_plans_of_several_pages_and_cannot_write(
    between: Guard, upstream: tuple[str, Path]
) -> None:
    with serving(rest_settings(between.address, upstream[1], mode=PlanningMode.DEFAULT, files_per_page=2)) as address:
        between.seen.clear()
        table = own_catalog(address).load_table("ns.t")
        assert sorted(table.scan("id < 3").to_arrow()["id"].to_pylist()) == [0, 1, 2]
        assert table.scan().count() == 6
        with pytest.raises(NotImplementedError, match="POST /v1/"):
            table.append(pa.table({"id": [1], "s": ["x"]}))
        metrics = requests.get(f"{address}/metrics", timeout=30).text
    assert 'skipstone_planning_plans_total{outcome="completed"} 2.0' in metrics
    assert 'skipstone_planning_pages_total{outcome="completed"} 2.0' in metrics
    assert {method for method, _, _ in between.seen} <= {"GET", "HEAD"}


def test_the_configuration_only_reads_and_leaves_the_choice_to_the_user(server: str, between: Guard) -> None:
    told = {
        "defaults": {"scan-planning-mode": "client", "a": "1"},
        "overrides": {"uri": "http://elsewhere", "scan-planning-mode": "client", "prefix": "p"},
        "endpoints": ["POST /v1/{prefix}/namespaces", "GET /v1/{prefix}/namespaces"],
    }
    between.trouble = lambda path: Trouble(200, json.dumps(told).encode()) if path == "/v1/config" else None
    found = requests.get(f"{server}/v1/config?warehouse=w", timeout=30).json()
    assert found["defaults"] == {"a": "1"}
    assert found["overrides"] == {"prefix": "p"}
    assert found["endpoints"] == [
        "GET /v1/{prefix}/namespaces",
        "POST /v1/{prefix}/namespaces/{namespace}/tables/{table}/plan",
        "GET /v1/{prefix}/namespaces/{namespace}/tables/{table}/plan/{plan-id}",
        "DELETE /v1/{prefix}/namespaces/{namespace}/tables/{table}/plan/{plan-id}",
        "POST /v1/{prefix}/namespaces/{namespace}/tables/{table}/tasks",
    ]
    assert [path for method, path, _ in between.seen if path.endswith("warehouse=w")] == ["/v1/config?warehouse=w"]


@pytest.mark.parametrize(
    ("asked", "told"),
    [
        (("DELETE", "/v1/namespaces/ns/tables/t"), (406, "UnsupportedOperationException")),
        (("POST", "/v1/namespaces/ns/tables/t"), (406, "UnsupportedOperationException")),
        (("POST", "/v1/transactions/commit"), (406, "UnsupportedOperationException")),
        (("PUT", "/v1/namespaces/ns"), (406, "UnsupportedOperationException")),
        (("GET", f"{PLAN}/7"), (404, "NoSuchPlanIdException")),
        (("DELETE", f"{PLAN}/7"), (404, "NoSuchPlanIdException")),
        (("OPTIONS", "/v1/config"), (405, "UnsupportedOperationException")),
        (("POST", "/v1/elsewhere/namespaces/ns/tables/t/plan"), (400, "BadRequestException")),
    ],
)
def test_what_is_not_for_reading_is_refused_here(
    server: str, between: Guard, asked: tuple[str, str], told: tuple[int, str]
) -> None:
    method, path = asked
    answer = requests.request(method, server + path, json={} if method == "POST" else None, timeout=30)
    assert (answer.status_code, answer.json()["error"]["type"]) == told
    assert not [path for _, path, _ in between.seen if path != "/v1/config"]


@pytest.mark.parametrize(
    ("body", "status", "kind"),
    [
        ({"snapshot-id": 5}, 404, "NoSuchSnapshotException"),
        ({"snapshot-id": "5"}, 400, "BadRequestException"),
        ({"case-sensitive": 1}, 400, "BadRequestException"),
        ({"stats-fields": "id"}, 400, "BadRequestException"),
        ({"start-snapshot-id": 1, "end-snapshot-id": 2}, 406, "UnsupportedOperationException"),
        ({"filter": {"type": "eq", "term": "none", "value": 1}}, 400, "BadRequestException"),
        ([], 400, "BadRequestException"),
    ],
)
def test_a_request_that_makes_no_sense_is_told_so(server: str, body: object, status: int, kind: str) -> None:
    answer = requests.post(server + PLAN, json=body, timeout=30)
    assert (answer.status_code, answer.json()["error"]["type"]) == (status, kind)


# --- requests that mean harm ---


def post(path: str, *headers: str, body: str = "{}") -> bytes:
    lines = [f"POST {path} HTTP/1.1", "host: h", "connection: close", *headers]
    return ("\r\n".join(lines) + "\r\n\r\n" + body).encode("latin-1")


@pytest.mark.parametrize(
    "sent",
    [
        post(
            PLAN, "content-length: 2", "transfer-encoding: chunked", body="0\r\n\r\nGET /v1/smuggled HTTP/1.1\r\n\r\n"
        ),
        post(PLAN, "content-length: 2", "content-length: 40", body="{}" + SMUGGLED),
        post(PLAN, "transfer-encoding: xchunked", "content-length: 2"),
        post(PLAN, "transfer-encoding: chunked", "transfer-encoding: identity", body="0\r\n\r\n"),
        post(PLAN, "content-length: +2"),
        post(PLAN, "content-length : 2"),
        post(PLAN, "content-length: 2\r\n folded: x"),
        f"GET /v1/config HTTP/1.1\r\nhost: h\r\nconnection: close\r\ncontent-length: 37\r\n\r\n{SMUGGLED}".encode(),
        b"GET http://elsewhere/v1/config HTTP/1.1\r\nhost: h\r\nconnection: close\r\n\r\n",
        b"GET //elsewhere/v1/config HTTP/1.1\r\nhost: h\r\nconnection: close\r\n\r\n",
        b"CONNECT elsewhere:443 HTTP/1.1\r\nhost: h\r\nconnection: close\r\n\r\n",
    ],
)
def test_a_request_that_could_be_read_in_two_ways_is_refused(server: str, between: Guard, sent: bytes) -> None:
    between.seen.clear()
    answer = exchange(server, sent)
    assert answer.split(b" ")[1] in (b"400", b"405", b"501"), answer
    assert answer.count(b"HTTP/1.1 ") == 1
    assert [path for _, path, headers in between.seen if path != "/v1/config" or "host" in headers.values()] == []


@pytest.mark.parametrize(
    "path",
    [
        "/v1/namespaces/ns/tables/../../../admin",
        "/v1/namespaces/ns/tables/%2e%2e/plan",
        "/v1/namespaces/..%2F..%2Fadmin/tables/t",
        "/v1/namespaces/%252e%252e%252fadmin/tables/t",
        "/v1/namespaces/ns/tables/..;/admin",
        "/v1/namespaces/ns/tables/a%5C..%5Cb",
        "/v1/namespaces/ns/tables/t%00",
        "/v1/namespaces/ns/tables/t%0d%0ax-injected:%201",
        "/v1/namespaces/ns/tables/%zz",
        "/v1/namespaces/ns/tables/%ff",
        "/v1//namespaces",
        "/v2/namespaces",
        "/admin",
    ],
)
def test_a_path_that_leads_elsewhere_is_refused(server: str, between: Guard, path: str) -> None:
    answer = exchange(server, f"GET {path} HTTP/1.1\r\nhost: h\r\nconnection: close\r\n\r\n".encode())
    assert answer.startswith(b"HTTP/1.1 400 "), answer
    assert not [path for _, path, _ in between.seen if path != "/v1/config"]


@pytest.mark.parametrize("name", ["a b", "ä/ö", "x%y", "q?r#s", "a+b", "tables", "plan", "a;b", "..."])
def test_an_odd_name_reaches_the_catalog_as_it_was_sent(server: str, between: Guard, name: str) -> None:
    path = f"/v1/namespaces/{quote(name, safe='')}/tables/{quote(name, safe='')}"
    exchange(server, f"GET {path} HTTP/1.1\r\nhost: h\r\nconnection: close\r\n\r\n".encode())
    assert [seen for _, seen, _ in between.seen if seen != "/v1/config"] == [path]


def test_headers_are_neither_injected_nor_dropped_for_the_caller(server: str, between: Guard) -> None:
    broken = post(PLAN, "content-length: 2", "x-a: b\rx-injected: 1")
    assert exchange(server, broken).startswith(b"HTTP/1.1 400 ")
    between.readers = {OWN: {"t"}, "alice": {"t"}}
    sent = [
        *("authorization: Bearer alice", "connection: authorization, close", "content-length: 2"),
        *("te: trailers", "proxy-authorization: Basic eA==", "cookie: a=b", "x-forwarded-host: elsewhere"),
    ]
    # who names a header of their own as one of the connection asks without it: nobody adds the server's credentials
    assert exchange(server, post(PLAN, *sent)).startswith(b"HTTP/1.1 403 ")
    (told,) = between.loads()
    assert told.keys().isdisjoint({"authorization", "te", "proxy-authorization", "connection", "x-injected"})
    assert told["host"] == urlsplit(between.address).netloc


def test_a_cookie_that_the_catalog_gives_one_caller_goes_to_no_other(server: str, between: Guard) -> None:
    between.trouble = lambda path: Trouble(200, b"{}", {"set-cookie": "session=alice"})
    assert requests.get(f"{server}/v1/namespaces", timeout=30).headers["set-cookie"] == "session=alice"
    requests.get(f"{server}/v1/namespaces", timeout=30)
    assert all("cookie" not in headers for _, _, headers in between.seen)


def test_large_and_deep_filters_are_refused_and_wide_ones_are_planned(server: str) -> None:
    def asked(body: bytes, client: str = "") -> requests.Response:
        headers = {"content-type": "application/json", "x-client-version": client}
        return requests.post(server + PLAN, body, headers=headers, timeout=60)

    assert asked(b'{"filter":' + b'{"type":"not","child":' * 100_000 + b"true" + b"}" * 100_001).status_code == 400
    assert asked(b"[" * 2_000_000).status_code == 400
    assert asked(b"x" * (intake.BODY_BYTES + 1)).status_code == 413
    packed = {"content-encoding": "gzip"}
    assert requests.post(server + PLAN, zlib.compress(b"{}"), headers=packed, timeout=30).status_code == 415
    values = list(range(200_000))
    wide = json.dumps({"filter": {"type": "in", "term": "id", "values": values}}).encode()
    assert asked(wide).status_code == 413  # who gives no name may filter rows by nothing else
    answer = asked(wide, "PyIceberg 0.12.0")
    assert answer.status_code == 200
    assert len(answer.content) < 20_000
    assert len(answer.json()["file-scan-tasks"]) == 3
    # Iceberg's Java library, which asks so, filters rows by what every task tells, so that cannot be shortened
    java = {"case-sensitive": True, "use-snapshot-schema": True}
    answer = asked(json.dumps({"filter": {"type": "in", "term": "id", "values": values[:9_000]}, **java}).encode())
    assert all(len(task["residual-filter"]["values"]) == 9_000 for task in answer.json()["file-scan-tasks"])
    answer = asked(json.dumps({"filter": {"type": "in", "term": "id", "values": values}, **java}).encode())
    assert answer.status_code == 413


def test_long_heads_and_queries_are_refused(server: str, between: Guard) -> None:
    answer = exchange(server, post(PLAN, "content-length: 2", f"x-long: {'a' * 100_000}"))
    assert answer[:13] in (b"HTTP/1.1 431 ", b"")  # what was not read may take the answer with it
    assert requests.get(f"{server}/v1/namespaces?parent={'a' * 20_000}", timeout=30).status_code == 414
    assert all(path == "/v1/config" for _, path, _ in between.seen)


def test_a_body_that_never_ends_is_cut_at_the_limit(server: str) -> None:
    def chunks() -> Iterator[bytes]:
        for _ in range(2 * intake.BODY_BYTES // (1 << 20)):
            yield b" " * (1 << 20)

    with suppress(requests.ConnectionError):  # the server may have closed before all was sent
        assert requests.post(server + PLAN, chunks(), timeout=60).status_code == 413
    assert requests.post(server + PLAN, json={}, timeout=30).ok


def test_slow_callers_lose_their_connection(settings: PlanningSettings, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(connections, "HEAD_SECONDS", 0.3)
    monkeypatch.setattr(intake, "BODY_SECONDS", 0.3)
    monkeypatch.setattr(intake.read_body, "__defaults__", (intake.BODY_BYTES, 0.3))
    with serving(settings) as address:
        url = urlsplit(address)
        for head in (b"", b"GET /v1/con", b"GET /healthz HTTP/1.1\r\nhost: h\r\n\r\nGET /v1"):
            with socket.create_connection((url.hostname, url.port), timeout=60) as connection:
                connection.sendall(head)
                found = b""
                with suppress(ConnectionResetError):
                    while part := connection.recv(4096):
                        found += part
                assert found.count(b"HTTP/1.1 ") == head.count(b"healthz")
        with socket.create_connection((url.hostname, url.port), timeout=60) as connection:
            connection.sendall(post(PLAN, "content-length: 20", body="{"))
            assert connection.recv(4096).startswith(b"HTTP/1.1 408 ")


def test_a_caller_who_reads_slowly_loses_the_connection(
    server: str, between: Guard, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(connections, "READ_SECONDS", 0.3)
    size = 64 << 20
    between.dropped.clear()
    between.trouble = lambda path: Trouble(200, b"x" * size) if path == "/v1/namespaces" else None
    url = urlsplit(server)
    with socket.create_connection((url.hostname, url.port), timeout=60) as connection:
        connection.sendall(b"GET /v1/namespaces HTTP/1.1\r\nhost: h\r\n\r\n")
        assert between.dropped.wait(60)
        found = 0
        with suppress(ConnectionResetError):
            while part := connection.recv(1 << 20):
                found += len(part)
    assert 0 < found < size


# --- who may see what ---


def test_a_plan_needs_the_right_to_load_the_table_each_time(server: str, between: Guard) -> None:
    between.readers = {OWN: {"t", "other"}, "alice": {"t", "other"}, "bob": {"other"}}

    def asked(user: str, table: str, part: str, body: object) -> requests.Response:
        path = f"{server}/v1/namespaces/ns/tables/{table}/{part}"
        headers = {"authorization": f"Bearer {user}"} if user else {}
        return requests.post(path, json=body, headers=headers, timeout=30)

    assert asked("alice", "t", "plan", {}).ok
    for user in ("bob", "", "eve"):
        refused = asked(user, "t", "plan", {})
        assert refused.status_code == 403
        assert refused.content == error("ForbiddenException", 403)
    assert asked("bob", "other", "plan", {}).ok
    between.readers["alice"].discard("t")
    assert asked("alice", "t", "plan", {}).status_code == 403


def test_a_token_of_a_page_gives_no_rights_and_fits_one_table_only(between: Guard, upstream: tuple[str, Path]) -> None:
    settings = rest_settings(between.address, upstream[1], files_per_page=1)
    between.readers = {OWN: {"t", "other"}, "alice": {"t", "other"}, "bob": {"other"}}
    try:
        with serving(settings, seal=b"one") as address, serving(settings, seal=b"two") as foreign:

            def tasks(where: str, user: str, table: str, token: object) -> requests.Response:
                headers = {"authorization": f"Bearer {user}"}
                path = f"{where}/v1/namespaces/ns/tables/{table}/tasks"
                return requests.post(path, json={"plan-task": token}, headers=headers, timeout=30)

            alice = {"authorization": "Bearer alice"}
            plan = requests.post(address + PLAN, json={}, headers=alice, timeout=30).json()
            token = plan["plan-tasks"][0]
            assert tasks(address, "alice", "t", token).ok
            assert tasks(address, "bob", "t", token).status_code == 403
            for refused in (
                tasks(address, "bob", "other", token),
                tasks(address, "alice", "other", token),
                tasks(foreign, "alice", "t", token),
                *(tasks(address, "alice", "t", broken) for broken in ("", "x", token[:-4], token[4:], "A" + token[1:])),
                *(tasks(address, "alice", "t", odd) for odd in (None, 7, [token], "a" * 3_000_000)),
            ):
                assert refused.status_code == 400
                assert "file-scan-tasks" not in refused.json()
    finally:
        between.readers = {}


# --- the catalog in trouble ---


@pytest.mark.parametrize(
    ("status", "kind"),
    [(401, "NotAuthorizedException"), (403, "ForbiddenException"), (404, "NoSuchTableException")],
)
def test_what_the_catalog_refuses_goes_to_the_caller_as_it_is(
    server: str, between: Guard, status: int, kind: str
) -> None:
    told = {"content-type": "application/json", "www-authenticate": 'Bearer realm="lake"'}
    between.trouble = lambda path: Trouble(status, error(kind, status), told) if "tables" in path else None
    answer = requests.post(server + PLAN, json={}, timeout=30)
    assert (answer.status_code, answer.content) == (status, error(kind, status))
    assert answer.headers["www-authenticate"] == told["www-authenticate"]


@pytest.mark.parametrize("status", [302, 429, 500, 502, 503, 504])
def test_a_catalog_that_is_broken_means_later_and_no_files(server: str, between: Guard, status: int) -> None:
    headers = {"retry-after": "7", "location": "http://elsewhere/"}
    between.trouble = lambda path: Trouble(status, b"<html>", headers) if "tables" in path else None
    answer = requests.post(server + PLAN, json={}, timeout=30)
    assert (answer.status_code, answer.headers["retry-after"]) == (503, "7")
    assert answer.json()["error"]["type"] == "ServiceUnavailableException"


def test_a_catalog_that_insists_on_planning_is_not_passed_by(server: str, between: Guard) -> None:
    path = f"{between.upstream}{PLAN.removesuffix('/plan')}"
    loaded = {**requests.get(path, timeout=30).json(), "config": {"scan-planning-mode": "server"}}
    between.trouble = lambda path: Trouble(200, json.dumps(loaded).encode()) if "tables" in path else None
    answer = requests.post(server + PLAN, json={}, timeout=30)
    assert (answer.status_code, answer.json()["error"]["type"]) == (406, "UnsupportedOperationException")


def test_a_catalog_that_is_slow_or_cut_off_means_later_and_no_files(server: str, between: Guard) -> None:
    release = threading.Event()
    try:
        between.trouble = lambda path: Trouble(wait=release) if "tables" in path else None
        answer = requests.post(server + PLAN, json={}, timeout=30)
        assert (answer.status_code, answer.headers["retry-after"]) == (503, "1")
    finally:
        release.set()
    other = f"{server}/v1/namespaces/ns/tables/unseen/plan"  # the answer of this one is not known yet
    between.trouble = lambda path: Trouble(is_cut=True) if "tables" in path else None
    assert requests.post(other, json={}, timeout=30).status_code == 503
    with pytest.raises(requests.RequestException):  # what is passed on is cut for the caller too
        requests.get(f"{server}/v1/namespaces/ns/tables/unseen", timeout=30)
    between.trouble = lambda path: Trouble(200, b"<html>nothing</html>") if "tables" in path else None
    assert requests.post(other, json={}, timeout=30).status_code == 503


def test_more_plans_than_there_is_room_for_are_refused_at_once(between: Guard, upstream: tuple[str, Path]) -> None:
    with serving(rest_settings(between.address, upstream[1], concurrent_plans=1)) as address:
        release = threading.Event()
        between.trouble = lambda path: Trouble(wait=release) if "tables" in path else None
        answers: list[int] = []
        callers = [
            threading.Thread(
                target=lambda: answers.append(requests.post(address + PLAN, json={}, timeout=60).status_code)
            )
            for _ in range(9)
        ]
        try:
            for caller in callers:
                caller.start()
            for _ in callers:
                assert between.held.acquire(timeout=60)
            refused = requests.post(address + PLAN, json={}, timeout=30)
            assert (refused.status_code, refused.headers["retry-after"]) == (503, "1")
            assert requests.get(f"{address}/healthz", timeout=30).ok
            assert 'plans_total{outcome="overloaded"} 1.0' in requests.get(f"{address}/metrics", timeout=30).text
        finally:
            release.set()
            between.trouble = lambda path: None
            for caller in callers:
                caller.join()
        assert answers == [200] * 9


def test_a_server_waits_for_a_catalog_that_is_not_there_yet(between: Guard, settings: PlanningSettings) -> None:
    gone, asked = Trouble(503, error("ServiceUnavailableException", 503)), threading.Event()

    def trouble(path: str) -> Trouble | None:
        """For the first times that the server asks."""
        if between.held.acquire(blocking=False):
            return gone
        asked.set()
        return None

    for _ in range(3):
        between.held.release()
    between.trouble = trouble
    try:
        with serving(settings) as address:
            assert asked.is_set()
            assert requests.post(address + PLAN, json={}, timeout=60).ok
    finally:
        between.trouble = lambda path: None


@pytest.mark.parametrize("levels", [("deep", "er", "still"), ("a b", "ä+ö"), ("plan",)], ids=str)
def test_nested_and_odd_names_are_planned(
    settings: PlanningSettings, upstream: tuple[str, Path], levels: tuple[str, ...]
) -> None:
    own = own_catalog(upstream[0])
    for depth in range(1, len(levels) + 1):
        own.create_namespace_if_not_exists(levels[:depth])
    name = (*levels, "tables")
    own.create_table(name, schema=SCHEMA).append(pa.table({"id": [1, 2], "s": ["x", "y"]}, schema=SCHEMA))
    with serving(settings) as address:
        login = {"credential": "user:secret", "oauth2-server-uri": f"{address}/v1/oauth/tokens"}
        found = own_catalog(address, **login, **{"scan-planning-mode": "server"})
        assert found.load_table(name).scan("id = 2").to_arrow()["s"].to_pylist() == ["y"]
        metrics = requests.get(f"{address}/metrics", timeout=30).text
    assert 'plans_total{outcome="completed"} 1.0' in metrics
