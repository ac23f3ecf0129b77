"""The API adapter against a real API server: verdicts are values, everything else is a fault."""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable, Iterator
from datetime import UTC, datetime, timedelta
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path
from threading import Thread
from typing import Any, TypeVar

import pytest
import yaml
from kubernetes import client
from kubernetes.aio.config import incluster_config
from skipstone_core.reasons import Reason
from skipstone_operator.adapters import connection as connections
from skipstone_operator.adapters import kube as kube_adapter
from skipstone_operator.adapters.connection import ApiFault, NoCluster, connect
from skipstone_operator.adapters.events import KubeEvents
from skipstone_operator.adapters.kube import KubeClient, Unprepared
from skipstone_operator.adapters.leases import KubeLeaseStore
from skipstone_operator.ports import (
    AccessDenied,
    Conflict,
    Created,
    Deleted,
    EventRecord,
    EventType,
    Exists,
    Gone,
    Refused,
    Updated,
)
from skipstone_operator.runtime.lease import Lease

from tests.cluster.controlplane import ControlPlane
from tests.cluster.shell import wait_until

T = TypeVar("T")
Work = Callable[[KubeClient], Awaitable[T]]


@pytest.fixture
def as_admin(control_plane: ControlPlane, monkeypatch: pytest.MonkeyPatch) -> None:
    """The adapter connects as the administrator."""
    monkeypatch.setenv("KUBECONFIG", str(control_plane.kubeconfig_admin))


def with_kube(work: Work[T]) -> T:
    """Run ``work`` with a client of its own."""

    async def scenario() -> T:
        connection = await connect()
        try:
            return await work(KubeClient(connection))
        finally:
            await connection.close()

    return asyncio.run(scenario())


def conf_map(namespace: str, name: str, **labels: str) -> dict[str, Any]:
    metadata = {"namespace": namespace, "name": name, "labels": labels}
    return {"apiVersion": "v1", "kind": "ConfigMap", "metadata": metadata, "data": {"a": "1"}}


def warehouse(namespace: str, name: str = "lake") -> dict[str, Any]:
    return {
        "apiVersion": "skipstone.dev/v1alpha1",
        "kind": "Warehouse",
        "metadata": {"namespace": namespace, "name": name},
        "spec": {"catalog": {"type": "Sql"}, "storage": {"pvc": {"claimName": "lake"}}},
    }


def created(answer: object) -> dict[str, Any]:
    assert isinstance(answer, Created)
    return answer.object


pytestmark = pytest.mark.usefixtures("as_admin")


def test_what_was_created_can_be_read(namespace: str) -> None:
    async def work(kube: KubeClient) -> None:
        made = created(await kube.create(conf_map(namespace, "c")))
        found = await kube.get("ConfigMap", namespace, "c")
        assert found is not None
        assert found["metadata"]["uid"] == made["metadata"]["uid"]
        assert await kube.get("ConfigMap", namespace, "other") is None

    with_kube(work)


def test_a_list_is_read_in_pages_and_its_items_say_what_they_are(
    namespace: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(kube_adapter, "PAGE", 2)

    async def work(kube: KubeClient) -> None:
        for number in range(5):
            await kube.create(conf_map(namespace, f"c{number}", half=str(number % 2)))
        found = await kube.list("ConfigMap", namespace, fields={"metadata.name!": "kube-root-ca.crt"})
        assert [item["metadata"]["name"] for item in found] == [f"c{number}" for number in range(5)]
        assert {(item["apiVersion"], item["kind"]) for item in found} == {("v1", "ConfigMap")}
        odd = await kube.list("ConfigMap", namespace, labels={"half": "1"})
        assert [item["metadata"]["name"] for item in odd] == ["c1", "c3"]

    with_kube(work)


def test_a_second_object_of_a_name_is_reported_as_existing(namespace: str) -> None:
    async def work(kube: KubeClient) -> None:
        await kube.create(conf_map(namespace, "c"))
        assert await kube.create(conf_map(namespace, "c")) == Exists()

    with_kube(work)


def test_an_invalid_object_is_refused_with_the_servers_sentence(namespace: str) -> None:
    async def work(kube: KubeClient) -> None:
        refused = await kube.create(warehouse(namespace) | {"spec": {"catalog": {"type": "Hive"}}})
        assert isinstance(refused, Refused)
        assert (refused.status, refused.reason) == (422, "Invalid")
        assert "spec.catalog.type" in refused.message

    with_kube(work)


def test_a_namespace_that_does_not_exist_refuses(namespace: str) -> None:
    async def work(kube: KubeClient) -> None:
        refused = await kube.create(conf_map(f"{namespace}-none", "c"))
        assert isinstance(refused, Refused)
        assert refused.status == 404

    with_kube(work)


def test_a_namespace_that_terminates_refuses_and_says_so(api_client: client.ApiClient, namespace: str) -> None:
    core = client.CoreV1Api(api_client)
    core.create_namespaced_config_map(namespace, conf_map(namespace, "held") | _finalized("held", namespace))
    core.delete_namespace(namespace)
    try:

        async def work(kube: KubeClient) -> None:
            refused = await kube.create(conf_map(namespace, "late"))
            assert isinstance(refused, Refused)
            assert refused.namespace_terminating

        with_kube(work)
    finally:
        core.patch_namespaced_config_map("held", namespace, {"metadata": {"finalizers": None}})
        wait_until(
            lambda: namespace not in {n.metadata.name for n in core.list_namespace().items},
            seconds=300,
            failure="the namespace stayed",
        )
        core.create_namespace({"metadata": {"name": namespace}})


def _finalized(name: str, namespace: str) -> dict[str, Any]:
    return {"metadata": {"name": name, "namespace": namespace, "finalizers": ["example.org/hold"]}}


def test_a_used_up_quota_refuses_and_says_so(api_client: client.ApiClient, namespace: str) -> None:
    core = client.CoreV1Api(api_client)
    core.create_namespaced_resource_quota(
        namespace, {"metadata": {"name": "none"}, "spec": {"hard": {"count/configmaps": "0"}}}
    )

    async def work(kube: KubeClient) -> Refused | None:
        refused = await kube.create(conf_map(namespace, "c"))
        return refused if isinstance(refused, Refused) else None

    wait_until(
        lambda: (refused := with_kube(work)) is not None and refused.by_quota,
        seconds=300,
        failure="the quota did not refuse",
    )


def test_an_old_version_of_an_object_conflicts(namespace: str) -> None:
    async def work(kube: KubeClient) -> None:
        old = created(await kube.create(warehouse(namespace)))
        labeled = old | {"metadata": old["metadata"] | {"labels": {"a": "1"}}}
        updated = await kube.replace(labeled)
        assert isinstance(updated, Updated)
        assert updated.object["metadata"]["resourceVersion"] != old["metadata"]["resourceVersion"]
        assert await kube.replace(labeled) == Conflict()
        assert await kube.replace_status(old | {"status": {"tables": 1}}) == Conflict()

    with_kube(work)


def test_a_status_write_changes_the_status_only(namespace: str) -> None:
    async def work(kube: KubeClient) -> None:
        made = created(await kube.create(warehouse(namespace)))
        changed = made | {"status": {"tables": 7}, "spec": made["spec"] | {"maxConcurrentRuns": 9}}
        updated = await kube.replace_status(changed)
        assert isinstance(updated, Updated)
        assert updated.object["status"]["tables"] == 7
        assert updated.object["spec"].get("maxConcurrentRuns") != 9
        assert updated.object["metadata"]["generation"] == 1

    with_kube(work)


def test_a_status_that_the_schema_does_not_allow_is_refused(namespace: str) -> None:
    async def work(kube: KubeClient) -> None:
        made = created(await kube.create(warehouse(namespace)))
        refused = await kube.replace_status(made | {"status": {"tables": -1}})
        assert isinstance(refused, Refused)
        assert refused.status == 422

    with_kube(work)


def test_what_is_gone_can_be_neither_written_nor_deleted(namespace: str) -> None:
    async def work(kube: KubeClient) -> None:
        made = created(await kube.create(warehouse(namespace)))
        uid = made["metadata"]["uid"]
        assert await kube.delete("Warehouse", namespace, "lake", uid=uid) == Deleted()
        assert await kube.delete("Warehouse", namespace, "lake", uid=uid) == Gone()
        assert await kube.replace_status(made) == Gone()

    with_kube(work)


def test_a_delete_never_hits_another_object_of_the_same_name(namespace: str) -> None:
    async def work(kube: KubeClient) -> None:
        first = created(await kube.create(conf_map(namespace, "c")))
        await kube.delete("ConfigMap", namespace, "c", uid=first["metadata"]["uid"])
        await kube.create(conf_map(namespace, "c"))
        assert await kube.delete("ConfigMap", namespace, "c", uid=first["metadata"]["uid"]) == Conflict()
        assert await kube.get("ConfigMap", namespace, "c") is not None

    with_kube(work)


@pytest.mark.cluster("it has no users and no roles")
def test_a_user_without_rights_is_refused_or_at_fault(
    control_plane: ControlPlane, namespace: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("KUBECONFIG", str(control_plane.user_kubeconfig("nobody-special")))

    async def work(kube: KubeClient) -> None:
        refused = await kube.create(conf_map(namespace, "c"))
        assert isinstance(refused, Refused)
        assert (refused.status, refused.reason) == (403, "Forbidden")
        with pytest.raises(AccessDenied, match="403"):
            await kube.get("ConfigMap", namespace, "c")
        with pytest.raises(AccessDenied, match="403"):
            await kube.list("ConfigMap", namespace)
        objection = await kube.find_objection(namespace)
        assert objection is not None
        assert objection.startswith(f"namespace {namespace}: the operator may not list warehouses; add")

    with_kube(work)


def test_a_prepared_cluster_passes_the_checks(namespace: str) -> None:
    async def work(kube: KubeClient) -> None:
        await kube.check_resources()
        assert await kube.find_objection(namespace) is None

    with_kube(work)


def test_missing_resource_definitions_are_named(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(kube_adapter, "API_VERSION", "skipstone.dev/v9")

    async def work(kube: KubeClient) -> None:
        with pytest.raises(Unprepared, match=r"does not serve loadjobs, .* of skipstone.dev/v9: apply the CRDs first"):
            await kube.check_resources()

    with_kube(work)


class Breaking(BaseHTTPRequestHandler):
    """Answers with ``status``, or hangs up when it is 0; counts requests by method."""

    status = 0
    requests: list[str]

    def answer(self) -> None:
        self.requests.append(self.command)
        self.rfile.read(int(self.headers.get("Content-Length") or 0))
        if self.status:
            self.send_response(self.status)
            self.end_headers()
            self.wfile.write(b"not JSON")
        self.close_connection = True

    do_GET = do_POST = do_PUT = do_DELETE = answer

    def log_message(self, format: str, *args: object) -> None:
        """Keep quiet."""


@pytest.fixture(params=[0, 200, 401, 429, 500, 503])
def breaking(
    request: pytest.FixtureRequest, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> Iterator[type[Breaking]]:
    """An API server that fails."""
    handler = type("Handler", (Breaking,), {"status": request.param, "requests": []})
    server = ThreadingHTTPServer(("127.0.0.1", 0), handler)
    thread = Thread(target=server.serve_forever)
    thread.start()
    monkeypatch.setenv("KUBECONFIG", str(write_kubeconfig(tmp_path, f"http://127.0.0.1:{server.server_port}")))
    yield handler
    server.shutdown()
    server.server_close()
    thread.join()


class Starting(BaseHTTPRequestHandler):
    """An API server whose storage starts: it refuses two requests, and asks to see them again at once."""

    refusals = 2

    def answer(self) -> None:
        status, body = (
            (429, b'{"message": "storage is (re)initializing"}') if self.refusals else (200, b'{"kind": "ConfigMap"}')
        )
        type(self).refusals = max(self.refusals - 1, 0)
        self.rfile.read(int(self.headers.get("Content-Length") or 0))
        self.send_response(status)
        self.send_header("Retry-After", "0")
        self.send_header("Content-Length", str(len(body)))
        self.end_headers()
        self.wfile.write(body)

    do_GET = do_POST = answer

    def log_message(self, format: str, *args: object) -> None:
        """Keep quiet."""


def write_kubeconfig(folder: Path, url: str) -> Path:
    path = folder / "kubeconfig"
    content = {
        "clusters": [{"name": "c", "cluster": {"server": url}}],
        "contexts": [{"name": "c", "context": {"cluster": "c", "user": "u"}}],
        "users": [{"name": "u", "user": {"token": "t"}}],
        "current-context": "c",
    }
    path.write_text(yaml.safe_dump(content))
    return path


def test_a_create_whose_answer_is_lost_is_a_fault_and_not_sent_again(breaking: type[Breaking]) -> None:
    async def work(kube: KubeClient) -> None:
        with pytest.raises(ApiFault, match="POST /api/v1/namespaces/n/configmaps"):
            await kube.create(conf_map("n", "c"))

    with_kube(work)
    assert breaking.requests == ["POST"]


@pytest.mark.parametrize("verb", ["get", "create"])
def test_a_request_that_is_refused_for_a_moment_is_sent_again(
    verb: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    handler = type("Handler", (Starting,), {})
    with ThreadingHTTPServer(("127.0.0.1", 0), handler) as server:
        thread = Thread(target=server.serve_forever)
        thread.start()
        monkeypatch.setenv("KUBECONFIG", str(write_kubeconfig(tmp_path, f"http://127.0.0.1:{server.server_port}")))

        async def work(kube: KubeClient) -> None:
            if verb == "get":
                assert await kube.get("ConfigMap", "n", "c") == {"kind": "ConfigMap"}
            else:
                await kube.create(conf_map("n", "c"))

        with_kube(work)
        server.shutdown()
        thread.join()
    assert handler.refusals == 0


def test_other_requests_that_fail_are_faults_too(breaking: type[Breaking]) -> None:
    async def work(kube: KubeClient) -> None:
        with pytest.raises(ApiFault):
            await kube.get("ConfigMap", "n", "c")
        with pytest.raises(ApiFault):
            await kube.replace(conf_map("n", "c"))
        with pytest.raises(ApiFault):
            await kube.delete("ConfigMap", "n", "c", uid="u")

    with_kube(work)


def test_a_server_that_is_not_there_is_a_fault(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("KUBECONFIG", str(write_kubeconfig(tmp_path, "http://127.0.0.1:1")))

    async def work(kube: KubeClient) -> None:
        with pytest.raises(ApiFault):
            await kube.get("ConfigMap", "n", "c")

    with_kube(work)


def test_without_any_configuration_the_way_out_is_named(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("KUBECONFIG", str(tmp_path / "none"))
    with pytest.raises(NoCluster, match=r"^no API server is configured: set KUBECONFIG or run in a pod"):
        asyncio.run(connect())


@pytest.mark.cluster("it has no users and no roles")
def test_a_rotated_service_account_token_is_taken_up(
    control_plane: ControlPlane, namespace: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    config = yaml.safe_load(control_plane.service_account_kubeconfig(namespace, "default").read_text())
    token = tmp_path / "token"
    token.write_text("outdated")
    host, _, port = control_plane.url.removeprefix("https://").partition(":")
    monkeypatch.delenv("KUBECONFIG")
    monkeypatch.setenv("KUBERNETES_SERVICE_HOST", host)
    monkeypatch.setenv("KUBERNETES_SERVICE_PORT", port)
    monkeypatch.setattr(connections, "SERVICE_ACCOUNT_TOKEN", token)
    monkeypatch.setattr(incluster_config, "SERVICE_TOKEN_FILENAME", str(token))
    monkeypatch.setattr(incluster_config, "SERVICE_CERT_FILENAME", str(control_plane.ca))

    async def work(kube: KubeClient) -> None:
        with pytest.raises(ApiFault, match="401"):
            await kube.get("ConfigMap", namespace, "c")
        token.write_text(config["users"][0]["user"]["token"])
        with pytest.raises(ApiFault, match="401"):
            await kube.get("ConfigMap", namespace, "c")
        with pytest.raises(AccessDenied, match="403"):
            await kube.get("ConfigMap", namespace, "c")
        assert (await kube.connection.credentials()).token == token.read_text()

    with_kube(work)


class SteppingClock:
    """A clock that a test moves."""

    def __init__(self) -> None:
        self.time = datetime.now(UTC)

    def now(self) -> datetime:
        return self.time


def record(namespace: str, note: str = "the first run", uid: str = "u-1") -> EventRecord:
    regarding = {
        "apiVersion": "skipstone.dev/v1alpha1",
        "kind": "Table",
        "namespace": namespace,
        "name": "flights",
        "uid": uid,
    }
    return EventRecord(regarding=regarding, type=EventType.NORMAL, reason=Reason.CREATED, note=note)


def published(namespace: str, connection_of: Callable[[KubeEvents, SteppingClock], Awaitable[None]]) -> list[Any]:
    """Run ``connection_of`` with an Events adapter; the Events that exist then."""

    async def work(kube: KubeClient) -> list[Any]:
        clock = SteppingClock()
        await connection_of(KubeEvents(kube.connection, clock, "operator-0"), clock)
        return list(await kube.list("Event", namespace))

    return with_kube(work)


def test_an_event_is_posted_about_its_object(namespace: str) -> None:
    async def work(events: KubeEvents, clock: SteppingClock) -> None:
        await events.publish(record(namespace))

    (event,) = published(namespace, work)
    assert (event["reason"], event["note"], event["type"]) == ("Created", "the first run", "Normal")
    assert event["regarding"]["name"] == "flights"
    assert event["reportingInstance"] == "operator-0"


def test_an_event_that_repeats_is_counted_on_the_first_one(namespace: str) -> None:
    async def work(events: KubeEvents, clock: SteppingClock) -> None:
        for _ in range(3):
            clock.time += timedelta(seconds=30)
            await events.publish(record(namespace))

    (event,) = published(namespace, work)
    assert event["series"]["count"] == 3


def test_a_series_that_ended_long_ago_starts_anew(namespace: str) -> None:
    async def work(events: KubeEvents, clock: SteppingClock) -> None:
        await events.publish(record(namespace))
        clock.time += timedelta(hours=1)
        await events.publish(record(namespace))

    assert len(published(namespace, work)) == 2


def test_an_object_that_changes_its_mind_all_the_time_falls_silent(namespace: str) -> None:
    async def work(events: KubeEvents, clock: SteppingClock) -> None:
        for number in range(40):
            await events.publish(record(namespace, note=str(number)))
        await events.publish(record(namespace, uid="u-2"))
        clock.time += timedelta(minutes=1)
        await events.publish(record(namespace, note="later"))

    assert len(published(namespace, work)) == 25 + 1 + 1


def test_an_event_that_cannot_be_posted_harms_nobody(namespace: str) -> None:
    async def work(events: KubeEvents, clock: SteppingClock) -> None:
        await events.publish(record(f"{namespace}-none"))
        await events.publish(record(namespace, note="x" * 5000))

    (event,) = published(namespace, work)
    assert len(event["note"]) == 1024


def test_two_candidates_never_hold_the_lease_together(namespace: str) -> None:
    async def work(kube: KubeClient) -> None:
        time = 0.0

        async def sleep(seconds: float) -> None:
            nonlocal time
            time += seconds

        def candidate(identity: str) -> Lease:
            store = KubeLeaseStore(kube, namespace, "skipstone-operator")
            return Lease(store=store, identity=identity, now=lambda: datetime.now(UTC), time=lambda: time, sleep=sleep)

        first, second = candidate("one"), candidate("two")
        await first.acquire()
        assert first.is_held
        await second.acquire()
        assert time >= 15
        assert (first.is_held, second.is_held) == (False, True)
        stored = await kube.get("Lease", namespace, "skipstone-operator")
        assert stored is not None
        assert (stored["spec"]["holderIdentity"], stored["spec"]["leaseTransitions"]) == ("two", 1)
        await second.release()
        await first.acquire()
        assert first.is_held

    with_kube(work)
