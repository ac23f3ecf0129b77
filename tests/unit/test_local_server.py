"""The API server of `skipstone local`: what each request does, and how it is refused."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import closing
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from skipstone_local.places import RootFolder

from tests.examples import cases
from tests.kube.cases import TABLE, manifest
from tests.unit.local_api import (
    APPLY,
    CORE,
    JSON_PATCH,
    MERGE,
    OURS,
    STRATEGIC,
    LocalApi,
    Obj,
    conf,
    owner_of,
    read,
    served,
)

FIELDS = st.sampled_from([
    "metadata", "spec", "status", "data", "name", "namespace", "labels", "annotations", "finalizers", "ownerReferences",
    "uid", "containers", "volumes", "ports", "env", "op", "path", "value", "kind", "apiVersion", "target", "$patch",
    "$retainKeys", "$setElementOrder/containers", "generateName", "resourceVersion", "managedFields", "type", "image",
    "preconditions", "deleteOptions", "columns", "conditions", "items", "hard", "boundObjectRef", "gracePeriodSeconds",
])  # fmt: skip
MAPS, PODS, TABLES = f"{CORE}/configmaps", f"{CORE}/pods", f"{OURS}/tables"


@pytest.fixture(scope="module")
def root(tmp_path_factory: pytest.TempPathFactory) -> Iterator[RootFolder]:
    with served(tmp_path_factory.mktemp("served") / "local") as folder:
        yield folder


@pytest.fixture
def api(root: RootFolder) -> Iterator[LocalApi]:
    opened = LocalApi(root)
    yield opened
    opened.connection.close()


def pod(name: str, **spec: Any) -> Obj:
    containers = [{"name": "main", "image": "none"}]
    return {"apiVersion": "v1", "kind": "Pod", "metadata": {"name": name}, "spec": {"containers": containers, **spec}}


def test_without_the_token_nothing_is_answered(api: LocalApi) -> None:
    for header in ("", "Bearer", "Bearer other", f"Basic {api.token}", f"Bearer {api.token}x", "Bearer account.e30=."):
        for path in ("/api", "/readyz", MAPS):
            api.send("GET", path, Authorization=header)
            assert api.code == 401


def test_what_is_created_has_what_the_server_adds(api: LocalApi) -> None:
    made = api.post(TABLES, manifest("Table", TABLE, "t") | {"status": {"rows": 3}})
    assert api.code == 201
    assert made["metadata"].keys() == {"name", "namespace", "uid", "creationTimestamp", "generation", "resourceVersion"}
    assert (made["metadata"]["generation"], "rows" in made["status"]) == (1, False)
    assert api.get(f"{TABLES}/t") == made


def test_a_name_is_generated_and_a_name_that_is_taken_is_refused(api: LocalApi) -> None:
    body = {"metadata": {"generateName": "run-"}}
    first, second = api.post(MAPS, body), api.post(MAPS, body)
    names = {first["metadata"]["name"], second["metadata"]["name"]}
    assert len(names) == 2
    assert all(name.startswith("run-") and len(name) == 9 for name in names)
    api.post(MAPS, conf("c"))
    refused = api.post(MAPS, conf("c"))
    assert (refused["code"], refused["reason"]) == (409, "AlreadyExists")
    assert refused["message"] == 'configmaps "c" already exists'


def test_a_dry_run_answers_and_stores_nothing(api: LocalApi) -> None:
    before = api.get(MAPS)["metadata"]["resourceVersion"]
    assert api.post(MAPS, conf("c"), dryRun="All")["metadata"]["uid"]
    assert api.names(MAPS) == []
    kept = api.post(MAPS, conf("kept"))
    assert int(kept["metadata"]["resourceVersion"]) == int(before) + 1
    api.delete(f"{MAPS}/kept", dryRun="All")
    api.delete(f"{MAPS}/kept", {"dryRun": ["All"]})
    assert api.patch(f"{MAPS}/kept", {"data": {"a": "2"}}, dryRun="All")["data"] == {"a": "2"}
    assert api.get(f"{MAPS}/kept") == kept


def test_a_write_that_changes_nothing_is_no_write(api: LocalApi) -> None:
    made = api.post(TABLES, manifest("Table", TABLE, "t"))
    assert api.put(f"{TABLES}/t", made) == made
    assert api.patch(f"{TABLES}/t", {"metadata": {"labels": {}}}) == made
    labeled = api.patch(f"{TABLES}/t", {"metadata": {"labels": {"a": "b"}}})
    assert labeled["metadata"]["generation"] == 1
    changed = api.patch(f"{TABLES}/t", {"spec": {"reclaimPolicy": "Delete"}})
    assert changed["metadata"]["generation"] == 2


def test_an_update_says_which_version_it_read(api: LocalApi) -> None:
    made = api.post(TABLES, manifest("Table", TABLE, "t"))
    api.patch(f"{TABLES}/t", {"metadata": {"labels": {"a": "b"}}})
    assert api.put(f"{TABLES}/t", made)["reason"] == "Conflict"
    stale = {"metadata": {"resourceVersion": made["metadata"]["resourceVersion"]}}
    assert api.patch(f"{TABLES}/t", stale)["code"] == 409
    made["metadata"].pop("resourceVersion")
    assert "must be specified for an update" in api.put(f"{TABLES}/t", made)["message"]
    made["metadata"]["uid"] = "other"
    assert "UID in precondition" in api.put(f"{TABLES}/t", made)["message"]


def test_finalizers_hold_an_object_until_the_last_is_gone(api: LocalApi) -> None:
    api.post(MAPS, conf("c", finalizers=["example.org/a", "example.org/b"]))
    marked = api.delete(f"{MAPS}/c")
    assert (api.code, marked["metadata"]["deletionGracePeriodSeconds"]) == (200, 0)
    refused = api.patch(f"{MAPS}/c", {"metadata": {"finalizers": ["example.org/a", "example.org/b", "example.org/c"]}})
    assert "no new finalizers can be added if the object is being deleted" in refused["message"]
    api.patch(f"{MAPS}/c", {"metadata": {"finalizers": ["example.org/b"]}})
    assert api.get(f"{MAPS}/c")["metadata"]["finalizers"] == ["example.org/b"]
    last = api.patch(f"{MAPS}/c", [{"op": "remove", "path": "/metadata/finalizers"}], JSON_PATCH)
    assert (api.code, last["metadata"]["name"]) == (200, "c")
    assert api.get(f"{MAPS}/c")["code"] == 404


def test_preconditions_of_a_deletion(api: LocalApi) -> None:
    made = api.post(MAPS, conf("c"))
    for required in ({"uid": "other"}, {"resourceVersion": "1"}):
        assert api.delete(f"{MAPS}/c", {"preconditions": required})["reason"] == "Conflict"
    gone = api.delete(f"{MAPS}/c", {"preconditions": {"uid": made["metadata"]["uid"]}})
    assert (gone["kind"], gone["status"], gone["details"]["uid"]) == ("Status", "Success", made["metadata"]["uid"])


def test_what_belongs_to_an_object_goes_with_it_unless_another_owner_is_left(api: LocalApi) -> None:
    first, second = api.post(MAPS, conf("first")), api.post(MAPS, conf("second"))
    api.post(MAPS, conf("child", ownerReferences=[owner_of(first)]))
    child = api.get(f"{MAPS}/child")
    api.post(MAPS, conf("grandchild", ownerReferences=[owner_of(child)]))
    api.post(MAPS, conf("both", ownerReferences=[owner_of(first), owner_of(second)]))
    api.delete(f"{MAPS}/first")
    assert api.names(MAPS) == ["both", "second"]
    assert api.get(f"{MAPS}/both")["metadata"]["ownerReferences"] == [owner_of(second)]


def test_an_orphan_stays_and_in_the_foreground_the_owner_waits(api: LocalApi) -> None:
    first, second = api.post(MAPS, conf("first")), api.post(MAPS, conf("second"))
    api.post(MAPS, conf("orphan", ownerReferences=[owner_of(first)]))
    api.delete(f"{MAPS}/first", {"propagationPolicy": "Orphan"})
    assert "ownerReferences" not in api.get(f"{MAPS}/orphan")["metadata"]
    held = owner_of(second, blockOwnerDeletion=True)
    api.post(MAPS, conf("held", ownerReferences=[held], finalizers=["example.org/a"]))
    waiting = api.delete(f"{MAPS}/second", {"propagationPolicy": "Foreground"})
    assert waiting["metadata"]["finalizers"] == ["foregroundDeletion"]
    assert api.get(f"{MAPS}/second")["metadata"]["deletionTimestamp"]
    api.patch(f"{MAPS}/held", {"metadata": {"finalizers": None}})
    assert api.names(MAPS) == ["orphan"]


def test_an_object_whose_owner_never_was_is_collected(api: LocalApi) -> None:
    made = api.post(MAPS, conf("c"))
    api.delete(f"{MAPS}/c")
    api.post(MAPS, conf("late", ownerReferences=[owner_of(made)]))
    until(lambda: api.names(MAPS) == [])


def until(holds: Any) -> None:
    """Look until it holds; pytest's own timeout is the bound."""
    while not holds():
        pass


def test_a_namespace_empties_itself_and_then_goes(api: LocalApi) -> None:
    api.post("/api/v1/namespaces", {"metadata": {"name": "n"}})
    place = "/api/v1/namespaces/n/configmaps"
    api.post(place, conf("free"))
    api.post(place, conf("held", finalizers=["example.org/a"]))
    ending = api.delete("/api/v1/namespaces/n")
    assert ending["status"]["phase"] == "Terminating"
    assert api.names(place) == ["held"]
    refused = api.post(place, conf("late"))
    assert [cause["reason"] for cause in refused["details"]["causes"]] == ["NamespaceTerminating"]
    api.patch(f"{place}/held", {"metadata": {"finalizers": []}})
    assert api.get("/api/v1/namespaces/n")["code"] == 404
    assert api.post(place, conf("c"))["message"] == 'namespaces "n" not found'


def test_a_pod_that_runs_has_its_time_to_end(api: LocalApi) -> None:
    api.post(PODS, pod("waits"))
    api.delete(f"{PODS}/waits")
    assert api.get(f"{PODS}/waits")["code"] == 404
    api.post(PODS, pod("runs"))
    api.post(f"{PODS}/runs/binding", {"target": {"kind": "Node", "name": "here"}})
    assert api.post(f"{PODS}/runs/binding", {"target": {"kind": "Node", "name": "there"}})["code"] == 409
    ending = api.delete(f"{PODS}/runs")
    assert ending["metadata"]["deletionGracePeriodSeconds"] == 30
    assert api.delete(f"{PODS}/runs")["metadata"] == ending["metadata"]
    api.delete(f"{PODS}/runs", {"gracePeriodSeconds": 0})
    assert api.get(f"{PODS}/runs")["code"] == 404
    api.post(PODS, pod("ended"))
    api.post(f"{PODS}/ended/binding", {"target": {"kind": "Node", "name": "here"}})
    api.patch(f"{PODS}/ended/status", {"status": {"phase": "Succeeded"}})
    api.delete(f"{PODS}/ended")
    assert api.names(PODS) == []


def test_a_quota_of_objects_is_kept(api: LocalApi) -> None:
    api.post(f"{CORE}/resourcequotas", {"metadata": {"name": "q"}, "spec": {"hard": {"pods": "1", "cpu": "1"}}})
    assert "does not enforce quotas of cpu" in api.headers["warning"]
    api.post(PODS, pod("first"))
    refused = api.post(PODS, pod("second"))
    assert (
        refused["message"]
        == 'pods "second" is forbidden: exceeded quota: q, requested: pods=1, used: pods=1, limited: pods=1'
    )
    api.patch(f"{PODS}/first/status", {"status": {"phase": "Failed"}})
    assert api.post(PODS, pod("second"))["kind"] == "Pod"


@pytest.mark.parametrize(
    ("selector", "names"),
    [
        ("", ["a", "b", "c"]),
        ("tier=web", ["a"]),
        ("tier==web", ["a"]),
        ("tier!=web", ["b", "c"]),
        ("tier in (web, db)", ["a", "b"]),
        ("tier notin (web)", ["b", "c"]),
        ("tier", ["a", "b"]),
        ("!tier", ["c"]),
        ("tier,size>3", ["b"]),
        ("size<4", ["a"]),
        ("tier=", []),
    ],
)
def test_labels_select(api: LocalApi, selector: str, names: list[str]) -> None:
    api.post(MAPS, conf("a", labels={"tier": "web", "size": "3"}))
    api.post(MAPS, conf("b", labels={"tier": "db", "size": "4"}))
    api.post(MAPS, conf("c"))
    assert api.names(MAPS, labelSelector=selector) == names


@pytest.mark.parametrize("selector", ["a=b=c", "(a)", "a in b", "a in (b", "a >x", "-a", "a=ü", ","])
def test_a_selector_that_makes_no_sense_is_refused(api: LocalApi, selector: str) -> None:
    assert api.get(MAPS, labelSelector=selector)["code"] == 400


def test_fields_select_those_that_a_kind_has(api: LocalApi) -> None:
    api.post(MAPS, conf("a"))
    api.post(MAPS, conf("b"))
    assert api.names(MAPS, fieldSelector=f"metadata.name=a,metadata.namespace={api.namespace}") == ["a"]
    assert api.names(MAPS, fieldSelector="metadata.name!=a") == ["b"]
    assert api.get(MAPS, fieldSelector="data.a=1")["message"] == "field label not supported: data.a"
    assert api.names("/api/v1/configmaps", fieldSelector="metadata.namespace=other") == []


def test_pages_show_one_moment(api: LocalApi) -> None:
    for name in "abcde":
        api.post(MAPS, conf(name))
    first = api.get(MAPS, limit="2")
    api.delete(f"{MAPS}/c")
    api.post(MAPS, conf("aa"))
    api.patch(f"{MAPS}/e", {"data": {"a": "2"}})
    second = api.get(MAPS, limit="2", **{"continue": first["metadata"]["continue"]})
    assert [item["metadata"]["name"] for item in second["items"]] == ["c", "d"]
    third = api.get(MAPS, limit="2", **{"continue": second["metadata"]["continue"]})
    assert [(item["metadata"]["name"], item["data"]["a"]) for item in third["items"]] == [("e", "1")]
    assert "continue" not in third["metadata"]
    assert {page["metadata"]["resourceVersion"] for page in (second, third)} == {first["metadata"]["resourceVersion"]}
    assert api.get(MAPS, **{"continue": "bogus"})["code"] == 400


def test_tables_and_metadata_alone(api: LocalApi) -> None:
    api.post(TABLES, manifest("Table", TABLE, "t"))
    for form, kind in (("Table", "Table"), ("PartialObjectMetadataList", "PartialObjectMetadataList")):
        accept = f"application/json;as={form};v=v1;g=meta.k8s.io,application/json"
        said = api.send("GET", TABLES, Authorization=f"Bearer {api.token}", Accept=accept)
        assert read(said)["kind"] == kind
    api.send("GET", TABLES, Authorization=f"Bearer {api.token}", Accept="text/html")
    assert api.code == 406


@pytest.mark.parametrize(
    ("asked", "body", "code", "reason"),
    [
        (("GET", "/nowhere", MERGE), None, 404, ""),
        (("GET", "/apis/other.dev/v1/namespaces/default/things", MERGE), None, 404, ""),
        (("GET", f"{CORE}/things", MERGE), None, 404, "NotFound"),
        (("PUT", MAPS, "application/json"), {}, 405, "MethodNotAllowed"),
        (("POST", f"{MAPS}/c", "application/json"), {}, 405, "MethodNotAllowed"),
        (("POST", "/api/v1/configmaps", "application/json"), {}, 405, "MethodNotAllowed"),
        (("POST", MAPS, "text/plain"), {}, 415, "UnsupportedMediaType"),
        (("PATCH", f"{MAPS}/kept", "application/json"), {}, 415, "UnsupportedMediaType"),
        (("PATCH", f"{TABLES}/kept", STRATEGIC), {}, 415, "UnsupportedMediaType"),
        (("POST", MAPS, "application/json"), [], 400, "BadRequest"),
        (("POST", MAPS, "application/json"), {"metadata": {"name": "a", "namespace": "other"}}, 400, "BadRequest"),
        (("POST", MAPS, "application/json"), {"kind": "Secret", "metadata": {"name": "a"}}, 400, "BadRequest"),
        (("POST", TABLES, "application/json"), {"metadata": {"name": "a"}}, 400, "BadRequest"),
        (("POST", MAPS, "application/json"), {"metadata": {}}, 422, "Invalid"),
        (("PATCH", f"{MAPS}/kept", MERGE), {"metadata": {"name": "other"}}, 400, "BadRequest"),
        (("PATCH", f"{MAPS}/none", MERGE), {}, 404, "NotFound"),
        (("DELETE", f"{MAPS}/kept", "application/json"), {"propagationPolicy": "Never"}, 400, "BadRequest"),
        (("PATCH", f"{MAPS}/kept", JSON_PATCH), [{"op": "test", "path": "/data/a", "value": "2"}], 422, "Invalid"),
        (("PATCH", f"{MAPS}/kept", JSON_PATCH), [{"op": "remove", "path": "/data/b"}], 400, "BadRequest"),
    ],
)  # fmt: skip
def test_a_request_that_makes_no_sense_is_refused(
    api: LocalApi, asked: tuple[str, str, str], body: object, code: int, reason: str
) -> None:
    method, path, media = asked
    api.post(MAPS, conf("kept"))
    api.post(TABLES, manifest("Table", TABLE, "kept"))
    answer = api.ask(method, path, body, media)
    assert api.code == code, answer
    if reason:
        assert (answer["kind"], answer["reason"]) == ("Status", reason)
    assert api.names(MAPS) == ["kept"]


def test_bodies_and_objects_are_bounded(api: LocalApi) -> None:
    large = conf("c") | {"data": {"a": "x" * (3 * 1024 * 1024)}}
    assert api.post(MAPS, large)["message"] == "Request entity too large: limit is 3145728"
    body = manifest("Table", TABLE, "t")
    body["metadata"]["annotations"] = {f"a{number}": "x" * 200_000 for number in range(9)}
    assert api.post(TABLES, body)["code"] in (413, 422)


def test_numbers_and_characters_that_cannot_be_stored(api: LocalApi) -> None:
    headers = {"Authorization": f"Bearer {api.token}", "Content_Type": "application/json"}
    for text in ('{"metadata": {"name": "a"}, "x": NaN}', '{"metadata": {"name": "a"}, "x": 1e999}', "{", '"\\ud800'):
        api.send("POST", MAPS, text.encode(), **headers)
        assert api.code == 400
    half = '{"metadata": {"name": "a"}, "data": {"a": "\\ud800"}}'
    api.send("POST", MAPS, half.encode(), **headers)
    assert api.code == 201
    assert api.get(f"{MAPS}/a")["data"]["a"] == "?"


def test_a_pod_is_patched_strategically(api: LocalApi) -> None:
    made = pod("p")
    made["spec"]["containers"].append({"name": "side", "image": "other"})
    api.post(PODS, made)
    image = {"spec": {"containers": [{"name": "side", "image": "newer"}]}}
    patched = api.patch(f"{PODS}/p", image, STRATEGIC)
    assert [(each["name"], each["image"]) for each in patched["spec"]["containers"]] == [
        ("main", "none"), ("side", "newer"),
    ]  # fmt: skip


def test_what_is_no_longer_applied_goes_and_what_others_apply_stays(api: LocalApi) -> None:
    path = f"{MAPS}/c"
    api.apply(path, conf("c") | {"data": {"a": "1", "b": "1"}})
    assert api.code == 201
    api.apply(path, conf("c", labels={"x": "y"}) | {"data": {"b": "1", "c": "1"}}, "other")
    mine = api.apply(path, conf("c") | {"data": {"a": "2"}})
    assert (api.code, mine["data"]) == (200, {"a": "2", "b": "1", "c": "1"})
    refused = api.apply(path, conf("c") | {"data": {"c": "2"}})
    assert refused["message"] == 'Apply failed with 1 conflict: conflict with "other": .data.c'
    forced = api.apply(path, conf("c") | {"data": {"c": "2"}}, force="true")
    assert forced["data"] == {"b": "1", "c": "2"}
    again = api.apply(path, conf("c") | {"data": {"c": "2"}})
    assert again["metadata"]["resourceVersion"] == forced["metadata"]["resourceVersion"]
    assert api.patch(path, conf("c"), "application/apply-patch+yaml")["code"] == 400


def test_items_of_a_list_are_applied_by_their_keys(api: LocalApi) -> None:
    columns = [{"name": "id", "type": "long", "required": True}, {"name": "a", "type": "string"}]
    spec = {**TABLE, "columns": columns, "primaryKey": ["id"]}
    for unwanted in ("partitioning", "sortOrder"):
        spec.pop(unwanted, None)
    path = f"{TABLES}/t"
    api.apply(path, manifest("Table", spec, "t"))
    assert api.code == 201
    more = {**spec, "columns": [*columns, {"name": "b", "type": "string"}]}
    assert [each["name"] for each in api.apply(path, manifest("Table", more, "t"))["spec"]["columns"]] == [
        "id",
        "a",
        "b",
    ]
    less = api.apply(path, manifest("Table", spec, "t"))
    assert [each["name"] for each in less["spec"]["columns"]] == ["id", "a"]


def test_an_event_is_one_object_in_two_groups(api: LocalApi) -> None:
    place = "/apis/events.k8s.io/v1/namespaces/default/events"
    about = {"kind": "Table", "name": "t", "namespace": "default", "uid": "u"}
    event = {
        "apiVersion": "events.k8s.io/v1", "kind": "Event", "metadata": {"name": "e"}, "regarding": about,
        "eventTime": "2026-01-01T00:00:00.000000Z", "reportingController": "c", "reportingInstance": "i",
        "type": "Normal", "reason": "R", "action": "A", "note": "said",
    }  # fmt: skip
    made = api.post(place, event)
    assert (made["regarding"], made["note"]) == (about, "said")
    api.patch(f"{place}/e", {"series": {"count": 2, "lastObservedTime": "2026-01-01T00:00:01.000000Z"}})
    (core,) = api.get(f"{CORE}/events", fieldSelector="involvedObject.uid=u")["items"]
    assert (core["involvedObject"], core["message"], core["series"]["count"]) == (about, "said", 2)
    assert api.names(place, fieldSelector="regarding.uid=u") == ["e"]


def test_a_token_that_is_bound_to_a_pod_reaches_nothing_else(api: LocalApi) -> None:
    for name in ("own", "other"):
        api.post(PODS, pod(name))
    uid = api.get(f"{PODS}/own")["metadata"]["uid"]
    bound = {"kind": "Pod", "apiVersion": "v1", "name": "own", "uid": uid}
    issued = api.post(f"{CORE}/serviceaccounts/default/token", {"spec": {"boundObjectRef": bound}})["status"]["token"]
    patch = {"metadata": {"annotations": {"a": "b"}}}
    api.token = issued
    assert api.patch(f"{PODS}/own", patch)["metadata"]["annotations"] == {"a": "b"}
    assert api.get(f"{PODS}/own")["kind"] == "Pod"
    for method, path in (("PATCH", f"{PODS}/other"), ("DELETE", f"{PODS}/own"), ("GET", PODS), ("POST", MAPS)):
        assert api.ask(method, path, patch)["code"] == 403
    api.token = f"{issued[:-1]}x"
    assert api.get(f"{PODS}/own")["code"] == 401


def test_the_log_of_a_pod_is_read_from_its_folder(api: LocalApi) -> None:
    uid = api.post(PODS, pod("p"))["metadata"]["uid"]
    assert "waiting to start" in api.get(f"{PODS}/p/log")["message"]
    folder = api.root.pod(uid)
    folder.mkdir(parents=True)
    (folder / "log").write_text("one\ntwo\nthree\n")

    def log(**query: str) -> str:
        api.get(f"{PODS}/p/log", **query)
        return api.text

    assert log() == "one\ntwo\nthree\n"
    assert [log(tailLines=str(lines)) for lines in range(4)] == ["", "three\n", "two\nthree\n", "one\ntwo\nthree\n"]
    assert log(limitBytes="5") == "one\nt"
    assert api.get(f"{PODS}/p/log", container="none")["code"] == 400
    api.patch(f"{PODS}/p/status", {"status": {"phase": "Succeeded"}})
    assert log(follow="true") == "one\ntwo\nthree\n"


VALUES = st.recursive(
    st.none() | st.booleans() | st.integers(-3, 3) | st.sampled_from(["", "a", "b", "$patch", "replace", "delete"]),
    lambda inner: st.lists(inner, max_size=2) | st.dictionaries(FIELDS, inner, max_size=4),
    max_leaves=8,
)


@settings(max_examples=cases(150, 3000))
@given(
    method=st.sampled_from(["POST", "PUT", "PATCH", "DELETE"]),
    path=st.sampled_from([MAPS, f"{MAPS}/a", PODS, f"{PODS}/a", f"{PODS}/a/status", f"{PODS}/a/binding", TABLES]),
    media=st.sampled_from(["application/json", MERGE, JSON_PATCH, STRATEGIC, APPLY]),
    body=VALUES | st.fixed_dictionaries({"metadata": VALUES, "spec": VALUES}),
)
def test_no_body_makes_the_server_fail(root: RootFolder, method: str, path: str, media: str, body: object) -> None:
    with closing(LocalApi(root, namespace="default")) as api:
        api.post(MAPS, conf("a"))
        api.post(PODS, pod("a"))
        for query in ({}, {"fieldManager": "me", "force": "true"}):
            api.ask(method, path, body, media, **query)
            assert api.code < 500, api.text
