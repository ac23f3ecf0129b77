"""What a user sees of a working lake: columns, waits, rows, and that everything ran restricted."""

from __future__ import annotations

import re

import pytest

from demo.install import SYSTEM
from demo.kube import JsonObject, condition
from tests.e2e.lake import PATIENCE, Lake, change, load, merge, people

COLUMNS = {
    "wh": ["NAME", "CATALOG", "STORAGE", "READY", "TABLES", "AGE"],
    "tbl": ["NAME", "READY", "ROWS", "FILES", "SEGMENTS", "INDEXES", "AGE"],
    "si": ["NAME", "TABLE", "COLUMNS", "SYNCED", "MISSING", "READY", "LASTSYNC", "AGE"],
    "lj": ["NAME", "TABLE", "COMPLETE", "SEGMENT", "ROWS", "REJECTED", "DURATION", "AGE"],
    "mj": ["NAME", "TABLE", "COMPLETE", "PRUNED", "UPDATED", "DELETED", "INSERTED", "DURATION", "AGE"],
}


@pytest.mark.parametrize("kind", COLUMNS)
def test_kubectl_get_shows_the_promised_columns(main: Lake, kind: str) -> None:
    header = main.kube.run("get", kind).splitlines()[0].split()
    assert header == COLUMNS[kind]


def test_columns_hold_live_values(main: Lake) -> None:
    rows = {
        line.split()[0]: line.split()
        for line in main.kube.run("get", "tbl,si,lj,mj", "--no-headers").splitlines()
        if line
    }
    assert rows["table.skipstone.dev/people"][1:3] == ["True", "200"]
    assert rows["secondaryindex.skipstone.dev/by-city"][1:3] == ["people", "city"]
    assert re.fullmatch(r"(\d+)/\1", rows["secondaryindex.skipstone.dev/by-city"][3])
    assert rows["loadjob.skipstone.dev/one"][1:3] == ["people", "True"]
    assert rows["loadjob.skipstone.dev/one"][4] == "100"
    assert rows["mergejob.skipstone.dev/corrections"][4:7] == ["1", "1", "1"]


@pytest.mark.parametrize(
    ("resource", "kind"),
    [
        ("wh/lake", "Ready"),
        ("tbl/people", "Ready"),
        ("si/by-city", "Ready"),
        ("lj/one", "Complete"),
        ("mj/corrections", "Complete"),
    ],
)
def test_kubectl_wait_works_on_each_kind(main: Lake, resource: str, kind: str) -> None:
    assert "condition met" in main.kube.run("wait", resource, f"--for=condition={kind}", "--timeout=300s")


def test_rows_are_those_of_loads_and_merge(main: Lake) -> None:
    rows = {row["id"]: row for row in main.rows()}
    assert sorted(rows) == [*(i for i in range(1, 201) if i != 8), 300]
    assert rows[7]["name"] == "renamed"
    assert rows[9]["name"] == "person 9"
    assert rows[300]["city"] == "Bonn"


def test_the_merge_did_not_read_the_other_segment(main: Lake) -> None:
    files = (main.kube.get("mj", "corrections") or {})["status"]["files"]
    assert files["candidate"] < files["total"]
    assert files["rewritten"] <= files["candidate"]


def test_driver_pods_ran_in_a_restricted_namespace(main: Lake) -> None:
    enforced = (main.kube.get("namespace", main.kube.namespace) or {})["metadata"]["labels"]
    assert enforced["pod-security.kubernetes.io/enforce"] == "restricted"
    assert main.kube.items("pods", "spark-role=driver") != []
    system = (main.kube.get("namespace", SYSTEM) or {})["metadata"]["labels"]
    assert system["pod-security.kubernetes.io/enforce"] == "restricted"


def test_the_same_source_under_another_name_is_refused(main: Lake) -> None:
    main.apply(load("one-again", "in/1.parquet"))
    assert main.until_failed("lj", "one-again")["reason"] == "SourceAlreadyApplied"


def test_a_job_deleted_and_applied_again_does_not_load_twice(main: Lake) -> None:
    main.kube.run("delete", "lj", "one", "--wait=true")
    main.apply(load("one", "in/1.parquet"))
    assert main.until_failed("lj", "one")["reason"] == "SourceAlreadyApplied"


def test_a_deleted_driver_pod_is_replaced_and_rows_come_once(main: Lake) -> None:
    main.write("in/3.parquet", people(401, 450))
    main.apply(load("three", "in/3.parquet"))
    main.kube.wait_for("a driver of three", lambda: bool(driver_of(main, "lj", "three")), seconds=PATIENCE, every=0.2)
    main.kube.run("delete", "pod", driver_of(main, "lj", "three"), "--now")
    main.until_complete("lj", "three")
    ids = [row["id"] for row in main.rows()]
    assert sorted(set(ids)) == sorted(ids)
    assert set(range(401, 451)) <= set(ids)


def driver_of(lake: Lake, kind: str, name: str) -> str:
    """The name of the job's live driver pod, or an empty string."""
    uid = (lake.kube.get(kind, name) or {}).get("metadata", {}).get("uid", "")
    pods = lake.kube.items("pods", f"skipstone.dev/owner-uid={uid},spark-role=driver")
    return next((p["metadata"]["name"] for p in pods if p["status"].get("phase") in {"Pending", "Running"}), "")


def test_suspend_stops_a_running_load_and_resume_finishes_it(main: Lake) -> None:
    name = next(filter(None, (suspended_load(main, first) for first in range(501, 1001, 50))))
    main.kube.wait_for(f"no driver of {name}", lambda: not driver_of(main, "lj", name), seconds=PATIENCE)
    main.kube.run("patch", "lj", name, "--type=merge", "-p", '{"spec":{"suspend":false}}')
    assert main.until_complete("lj", name)["status"]["rowsLoaded"] == 50


def suspended_load(lake: Lake, first: int) -> str:
    """The name of a load of 50 people that was stopped in the midst; empty when it committed before it was stopped.

    The operator may be about to start again when a load is suspended, because another test has just ended it.
    """
    name = f"from-{first}"
    lake.write(f"in/{name}.parquet", people(first, first + 49))
    lake.apply(load(name, f"in/{name}.parquet"))
    lake.kube.wait_for(
        f"a driver of {name}",
        lambda: bool(driver_of(lake, "lj", name)) or is_complete(lake.kube.get("lj", name)),
        seconds=PATIENCE,
        every=0.2,
    )
    lake.kube.run("patch", "lj", name, "--type=merge", "-p", '{"spec":{"suspend":true}}')
    found = lake.until("lj", name, lambda job: is_suspended(job) or is_complete(job))
    if is_suspended(found):
        return name
    assert found["status"]["rowsLoaded"] == 50
    return ""


def is_complete(job: JsonObject | None) -> bool:
    """Whether the rows of a job are in the table."""
    return condition(job, "Complete").get("status") == "True"


def is_suspended(job: JsonObject) -> bool:
    """Whether nothing is done for a job because it is suspended."""
    progress = condition(job, "Progressing")
    return (progress.get("status"), progress.get("reason")) == ("False", "Suspended")


def test_an_edited_status_heals(main: Lake) -> None:
    # The Table shows what a job changed a moment after the job does.
    before = len(main.rows())
    main.until("tbl", "people", lambda t: t["status"].get("rows") == before)
    main.kube.run(
        "patch", "tbl", "people", "--subresource=status", "--type=merge", "-p", '{"status":{"conditions":[]}}'
    )
    main.until_condition("tbl", "people", "Ready")
    assert (main.kube.get("tbl", "people") or {})["status"]["rows"] == before


def test_an_added_column_is_applied(main: Lake) -> None:
    add = '[{"op":"add","path":"/spec/columns/-","value":{"name":"note","type":"string"}}]'
    main.kube.run("patch", "tbl", "people", "--type=json", "-p", add)
    found = main.until("tbl", "people", lambda t: "note" in t.get("status", {}).get("fieldIds", {}))
    assert condition(found, "Ready")["status"] == "True"


def test_a_merge_with_only_unknown_keys_to_delete_is_complete_and_changes_nothing(main: Lake) -> None:
    main.write("feeds/2.parquet", [change("D", 99999)])
    main.apply(merge("nothing", "feeds/2.parquet"))
    status = main.until_complete("mj", "nothing")["status"]
    assert status["rows"]["deleted"] == 0
