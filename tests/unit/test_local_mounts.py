"""Paths of a pod in texts: what names one names this machine's folder instead, and nothing else changes."""

from __future__ import annotations

import json
import shlex

import pytest
from hypothesis import given
from hypothesis import strategies as st
from skipstone_local.runner.mounts import Mounts

ROOT = "/home/ada/my lake/.skipstone"
LAKE = f"{ROOT}/claims/default/lake"
TMP = f"{ROOT}/pods/1/scratch/tmp"
PLACES = {
    "/skipstone/lake": LAKE,
    "/skipstone/lake/inner": f"{ROOT}/claims/default/inner",
    "/tmp": TMP,
    "/opt/skipstone/bin/python": "/usr/bin/python3",
}
MOUNTS = Mounts(PLACES, ROOT)
BELOW = st.lists(st.text("abz019._- é", min_size=1, max_size=8).map(str.strip).filter(bool), max_size=3).map(
    lambda levels: "".join(f"/{level}" for level in levels)
)


@pytest.mark.parametrize(
    ("text", "mapped"),
    [
        ("/skipstone/lake", LAKE),
        ("/skipstone/lake/", f"{LAKE}/"),
        ("/skipstone/lake/a b.csv", f"{LAKE}/a b.csv"),
        ("/skipstone/lake/inner/x", f"{ROOT}/claims/default/inner/x"),
        ("/skipstone/lake/inners", f"{LAKE}/inners"),
        ("file:///skipstone/lake/x", f"file://{LAKE}/x"),
        ("file:/skipstone/lake/x", f"file:{LAKE}/x"),
        ("sqlite:////skipstone/lake/catalog.db", f"sqlite:///{LAKE}/catalog.db"),
        ("sqlite+pysqlite:////skipstone/lake/c.db?timeout=9", f"sqlite+pysqlite:///{LAKE}/c.db?timeout=9"),
        ("jdbc:sqlite:/skipstone/lake/c.db", f"jdbc:sqlite:{LAKE}/c.db"),
        ("/tmp/a,file:///skipstone/lake/b", f"{TMP}/a,file://{LAKE}/b"),
        ("-Dx=/tmp/y -Dz='/skipstone/lake'", f"-Dx={TMP}/y -Dz='{LAKE}'"),
        ("/opt/skipstone/bin/python", "/usr/bin/python3"),
    ],
)
def test_a_path_of_the_pod_names_the_folder(text: str, mapped: str) -> None:
    assert MOUNTS.map_text(text) == mapped


@pytest.mark.parametrize(
    "text",
    [
        "/skipstone/lake2", "/skipstone/lake.old/x", "/skipstone", "/data/skipstone/lake", "s3://tmp/skipstone/lake",
        "s3:///tmp/x", "https://host/tmp/x", "sqlite:///tmp/x", "sqlite:///skipstone/lake/c.db", "tmp/x", "//tmp", "",
        "postgresql://user@host/tmp", "x/tmp", "/opt/skipstone/bin/python3", f"{LAKE}/tmp", f"file://{LAKE}/a",
    ],
)  # fmt: skip
def test_what_only_looks_alike_stays(text: str) -> None:
    assert MOUNTS.map_text(text) == text


@given(
    place=st.sampled_from(sorted(PLACES)), below=BELOW, scheme=st.sampled_from(["", "file:", "file://", "sqlite:///"])
)
def test_every_path_below_a_mount_is_mapped_by_the_longest_mount(place: str, below: str, scheme: str) -> None:
    path = f"{place}{below}"
    best = max((one for one in PLACES if path == one or path.startswith(f"{one}/")), key=len)
    assert MOUNTS.map_text(f"{scheme}{path}") == f"{scheme}{PLACES[best]}{path[len(best) :]}"


@given(
    paths=st.lists(st.tuples(st.sampled_from(sorted(PLACES)), BELOW), min_size=1, max_size=4),
    separator=st.sampled_from(",;"),
)
def test_a_list_is_mapped_item_by_item(paths: list[tuple[str, str]], separator: str) -> None:
    items = [f"{place}{below}" for place, below in paths]
    assert MOUNTS.map_text(separator.join(items)) == separator.join(map(MOUNTS.map_text, items))


@given(st.text())
def test_a_text_without_a_mount_stays(text: str) -> None:
    if not any(place in text for place in PLACES):
        assert MOUNTS.map_text(text) == text


@given(st.text())
def test_below_a_root_under_a_mount_nothing_is_mapped_twice(below: str) -> None:
    nested = Mounts({"/tmp": "/tmp/lake/pods/1/scratch/tmp", "/skipstone/lake": "/tmp/lake/claims/a/b"}, "/tmp/lake")
    clean = below.replace("/", "").replace(" ", "") or "x"
    mapped = nested.map_text(f"/skipstone/lake/{clean}")
    assert mapped == f"/tmp/lake/claims/a/b/{clean}"
    assert nested.map_text(f"/tmp/lake/{clean}") == f"/tmp/lake/{clean}"


def test_a_request_is_mapped_where_its_warehouse_is_and_nowhere_else() -> None:
    request = {
        "warehouse": {"root": "/skipstone/lake", "catalog": {"uri": "", "properties": {"a": "/tmp"}}, "locations": []},
        "merge": {"whenMatched": [{"values": {"path": "'/skipstone/lake/x'"}}], "n": 3},
    }
    mapped = json.loads(MOUNTS.map_file("request.json", json.dumps(request)))
    assert mapped["warehouse"] == {"root": LAKE, "catalog": {"uri": "", "properties": {"a": TMP}}, "locations": []}
    assert mapped["merge"] == request["merge"]


@pytest.mark.parametrize("text", ["", "{", "[1]", '{"load": "/tmp"}', "nothing"])
def test_what_is_not_a_request_stays(text: str) -> None:
    assert MOUNTS.map_file("request.json", text) == text


def test_properties_are_mapped_although_they_are_escaped() -> None:
    lines = "spark.a=/tmp/x\nspark.b=file\\:/skipstone/lake\nspark.c\\=d=other\\=/x\nspark.d=1\n"
    expected = f"spark.a={TMP}/x\nspark.b=file:{LAKE}\nspark.c\\=d=other\\=/x\nspark.d=1\n"
    assert MOUNTS.map_file("spark.properties", lines) == expected


def test_other_files_stay() -> None:
    assert MOUNTS.map_file("ca.crt", "/tmp") == "/tmp"


def test_words_of_a_shell_stay_words() -> None:
    mapped = MOUNTS.map_variable(
        "PYSPARK_SUBMIT_ARGS", "--properties-file /tmp/p --conf a=/skipstone/lake pyspark-shell"
    )
    assert shlex.split(mapped) == ["--properties-file", f"{TMP}/p", "--conf", f"a={LAKE}", "pyspark-shell"]
    assert MOUNTS.map_variable("HOME", "/tmp") == TMP
