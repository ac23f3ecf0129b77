"""The report's page: nothing from outside, everything escaped, numbers as in the statuses, and a bounded size."""

from __future__ import annotations

import json
import re
import subprocess
import sys
from copy import deepcopy
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from skipstone_report import find_objects, render_report
from skipstone_report.reading import showable
from skipstone_report.style import DARK, LIGHT

from tests.unit import objects
from tests.unit.report_cases import NOW, FileFunnel, at, indexed, loaded, maintained_table, merged, sample
from tests.unit.report_pages import Element, read_page

Obj = dict[str, Any]
#: What a text of the cluster would have to write to become markup.
HOSTILE = (
    """</title></style><script>alert(1)</script><img src=x onerror=alert(1)>" onload='alert(1)' &lt;b&gt; \u202e\x00"""
)


@pytest.fixture(scope="module")
def page() -> Element:
    return read_page(render_report(sample(), NOW))


def resolve(source: str, given: dict[str, Obj]) -> object:
    """What is at ``Kind/namespace/name#path`` of the input."""
    key, _, path = source.partition("#")
    value: Any = given[key]
    for part in path.split("."):
        value = value[int(part)] if isinstance(value, list) else value[part]
    return value


class TestNumbers:
    def test_each_number_is_that_of_its_status(self, page: Element) -> None:
        given = by_key(sample())
        shown = [one for one in page.walk() if "data-from" in one.attributes]
        assert len(shown) > 300
        for one in shown:
            value = resolve(one.attributes["data-from"], given)
            assert str(value) == one.attributes.get("value", one.attributes.get("data-value")), one.attributes

    def test_each_number_is_written_in_full_or_has_the_full_one_beside(self, page: Element) -> None:
        for one in page.find("data"):
            exact = f"{int(one.attributes['value']):,}"
            assert exact in (one.text, one.attributes.get("title"))

    def test_every_number_says_whether_it_is_from_a_status_or_counted_here(self, page: Element) -> None:
        assert all(("data-from" in one.attributes) != ("data-counted" in one.attributes) for one in page.find("data"))

    def test_all_counts_of_a_merge_an_index_and_a_table_are_there(self, page: Element) -> None:
        told = {one.attributes.get("data-from") for one in page.walk()}
        merge, index, table = (
            f"{key}#status." for key in ("MergeJob/lake/hourly-2", "SecondaryIndex/lake/by-tail", "Table/lake/flights")
        )
        expected = {merge + f"files.{name}" for name in ("total", "candidate", "touched", "rewritten")}
        expected |= {merge + f"funnel.{at}.{name}" for at in range(6) for name in ("filesIn", "filesOut")}
        expected |= {merge + f"rows.{name}" for name in ("updated", "inserted", "deleted")}
        expected |= {index + f"segments.{name}" for name in ("total", "synced", "missing", "failed")}
        expected |= {index + "entries", index + "bytes", table + "rows", table + "files", table + "bytes"}
        expected |= {table + f"health.{name}" for name in ("smallFiles", "dueFiles", "snapshots", "metadataBytes")}
        expected |= {table + "lastMaintenance.0.counts.filesRewritten"}
        expected |= {f"Warehouse/lake/main#status.planning.{name}" for name in ("replicas", "readyReplicas")}
        assert expected <= told

    def test_a_number_of_more_digits_than_a_float_has_is_exact(self) -> None:
        huge = indexed("big", "tailnum", ())
        huge["status"]["entries"] = (1 << 63) - 1
        text = render_report([huge], NOW)
        assert "9,223,372,036,854,775,807" in text

    def test_bars_are_as_long_as_their_numbers(self, page: Element) -> None:
        source = "MergeJob/lake/hourly-2#status.funnel.2.filesOut"
        (drawn,) = (one for one in page.find("rect") if one.attributes.get("data-from") == source)
        assert float(drawn.attributes["width"].rstrip("%")) == round(100 * 366 / 4112, 2)


class TestSafety:
    def test_the_page_asks_nobody_for_anything(self) -> None:
        text = render_report(sample(), NOW)
        tree = read_page(text)
        (policy,) = tree.find("meta", http_equiv="Content-Security-Policy")
        assert policy.attributes["content"].startswith("default-src 'none'; style-src 'unsafe-inline'; img-src data:")
        assert not re.search(r"https?:|//[a-z]|@import|javascript:|<script", text)
        for one in tree.walk():
            assert one.name not in ("script", "link", "iframe", "img", "object", "embed", "base", "form")
            assert not any(name.startswith("on") or name in ("src", "action") for name in one.attributes)
            assert one.attributes.get("href", "#").startswith("#")
        assert all(found.startswith("#") for found in re.findall(r"url\(([^)]*)\)", text))

    def test_texts_of_the_cluster_stay_texts(self) -> None:
        def poison(value: Any, key: str = "") -> Any:
            if isinstance(value, dict):
                return {name: poison(each, name) for name, each in value.items()}
            if isinstance(value, list):
                return [poison(each, key) for each in value]
            kept = ("kind", "apiVersion", "type", "status") if isinstance(value, str) else (key,)
            return value if key in kept or key.endswith(("Time", "Timestamp", "time")) else value + HOSTILE

        clean, poisoned = sample(), [poison(obj) for obj in sample()]
        page, expected = read_page(render_report(poisoned, NOW)), read_page(render_report(clean, NOW))
        assert [one.name for one in page.walk()].count("script") == 0
        assert {one.name for one in page.walk()} <= {one.name for one in expected.walk()}
        assert "<script>alert(1)</script>" in page.text, "it is shown, as text"
        assert "\u202e" not in page.text and "\x00" not in page.text
        assert not any(name.startswith("on") for one in page.walk() for name in one.attributes)

    def test_a_title_of_the_caller_is_escaped_too(self) -> None:
        (title,) = read_page(render_report([], NOW, HOSTILE)).find("title")
        assert "<script>" in title.text

    @pytest.mark.parametrize("name", ["\u202eegats", "\x1b[2J", "\ud800", "\u061c", "y" * 1_000_000])
    def test_names_in_a_status_are_no_less_hostile_than_its_texts(self, name: str) -> None:
        job, kept = merged("feed", FileFunnel(total=5, candidate=1)), maintained_table()
        job["status"]["lastRun"]["stagesMs"][name] = 17
        kept["status"]["lastMaintenance"][0]["counts"][name] = 17
        page = render_report([job, kept], NOW)
        assert name not in page and len(page) < 100_000
        page.encode()

    @pytest.mark.parametrize("text", ["\u061c", "\ud800", "\udfff half", "a\ufffeb\x1b[31m"])
    def test_what_cannot_be_written_is_replaced(self, text: str) -> None:
        obj = indexed("odd", "tailnum", ())
        obj["status"]["columnList"] = text
        assert "\ufffd" in render_report([obj], NOW).encode().decode()

    def test_specs_and_annotations_are_not_shown(self) -> None:
        warehouse = objects.warehouse(catalog={"type": "Sql", "uri": "postgresql://keeper:hush@db/air"})
        warehouse["metadata"]["annotations"] = {"note": "hush"}
        assert "hush" not in render_report([warehouse], NOW)


anything = st.recursive(
    st.none() | st.booleans() | st.integers() | st.floats() | st.text(max_size=12) | st.just("2026-02-30T25:00:00Z"),
    lambda inner: st.lists(inner, max_size=3) | st.dictionaries(st.text(max_size=6), inner, max_size=3),
    max_leaves=4,
)


def one_of_each() -> list[Obj]:
    """One object of each kind, a failed and a running merge besides."""
    kept = ("main", "flights", "by-origin", "load-1", "hourly-2", "hourly-1", "hourly-9", "hourly")
    return [obj for obj in sample() if obj["metadata"]["name"] in kept]


def leaves(value: object, path: tuple[str | int, ...] = ()) -> list[tuple[str | int, ...]]:
    """The paths of all parts of ``value`` below its first level."""
    parts = value.items() if isinstance(value, dict) else enumerate(value) if isinstance(value, list) else ()
    return [(*path, name) for name, _ in parts] + [
        found for name, each in parts for found in leaves(each, (*path, name))
    ]


class TestTolerance:
    @settings(max_examples=50, deadline=None)
    @given(data=st.data())
    def test_whatever_an_object_holds_a_whole_page_is_made(self, data: st.DataObject) -> None:
        given = one_of_each()
        for _ in range(data.draw(st.integers(1, 6))):
            obj = data.draw(st.sampled_from(given))
            *way, last = data.draw(st.sampled_from(leaves(obj)))
            part: Any = obj
            for name in way:
                part = part[name] if isinstance(part, dict) and name in part else {}
                part = part if isinstance(part, dict) else {}
            if data.draw(st.booleans()):
                part.pop(last, None)
            else:
                part[last] = data.draw(anything)
        tree, objects_given = read_page(render_report(given, NOW).encode().decode()), by_key(given)
        for one in tree.walk():
            if "data-from" in one.attributes:
                shown = one.attributes.get("value", one.attributes.get("data-value"))
                assert str(resolve(one.attributes["data-from"], objects_given)) == shown

    @settings(max_examples=30, deadline=None)
    @given(anything)
    def test_whatever_stands_in_place_of_a_status(self, status: object) -> None:
        given = [{**obj, "status": status} for obj in one_of_each()]
        read_page(render_report([*given, status, {"kind": status, "metadata": status}], NOW).encode().decode())

    def test_no_objects_at_all(self) -> None:
        page = read_page(render_report([], NOW))
        assert "Nothing needs you" in page.text and "There are no tables" in page.text

    def test_objects_without_any_status(self) -> None:
        bare = [objects.warehouse(), objects.table(), objects.index(), objects.load("jan"), objects.merge("feb")]
        assert "lake/jan" in read_page(render_report(bare, NOW)).text

    def test_objects_of_others_are_left_out(self) -> None:
        foreign = {"apiVersion": "other.dev/v1", "kind": "Table", "metadata": {"name": "theirs"}}
        assert "theirs" not in render_report([objects.claim(), foreign], NOW)

    def test_of_an_object_that_is_given_twice_the_last_counts(self) -> None:
        first, second = indexed("by-tail", "tailnum", (4,)), indexed("by-tail", "tailnum", ())
        page = read_page(render_report([first, second], NOW))
        assert "is missing" not in page.text and page.find(
            "data", data_from="SecondaryIndex/lake/by-tail#status.entries"
        )

    def test_lists_are_flattened(self) -> None:
        assert list(find_objects({"kind": "List", "items": [{"a": 1}, 7]})) == [{"a": 1}]
        assert list(find_objects({"kind": "Table"})) == [{"kind": "Table"}]
        assert list(find_objects([1])) == []


def by_key(given: list[Obj]) -> dict[str, Obj]:
    """The objects that a page is about, by how it names them."""
    found: dict[str, Obj] = {}
    for obj in given:
        kind, metadata = obj.get("kind"), obj.get("metadata")
        if isinstance(kind, str) and isinstance(metadata, dict):
            found[f"{kind}/{showable(metadata.get('namespace'))}/{showable(metadata.get('name'))}"] = obj
    return found


def many(obj: Obj, count: int, **more: Any) -> list[Obj]:
    """``count`` objects like ``obj`` with names of their own."""
    metadata, name = obj["metadata"], obj["metadata"]["name"]
    return [{**obj, **more, "metadata": {**metadata, "name": f"{name}-{number}"}} for number in range(count)]


def test_a_large_cluster_makes_a_small_page() -> None:
    files = FileFunnel(total=90_000, candidate=5, touched=5)
    merges, loads = many(merged("merge", files, minutes=5), 5000), many(loaded("load", 7, minutes=9), 5000)
    for number, job in enumerate([*merges, *loads]):
        job["spec"] = {**job["spec"], "tableRef": {"name": f"flights-{number % 2000}"}}
    indexes = many(indexed("by-tail", "tailnum", tuple(range(20))), 2000)
    text = render_report([*many(maintained_table(), 2000), *indexes, *merges, *loads], NOW)
    assert len(text) < 1_500_000
    counted = {int(found) for found in re.findall(r'<data value="(\d+)" data-counted', text)}
    left = {
        "tables": 1800,
        "indexes": 1850,
        "jobs": 9800,
        "merges": 4992,
        "lags": 1988,
        "runs": 11_988,
        "problems": 5900,
    }
    assert set(left.values()) <= counted, "what is not shown is counted"


def test_the_newest_jobs_are_shown() -> None:
    jobs = [loaded(f"load-{number}", number, minutes=number + 1) for number in range(400)]
    page = read_page(render_report(jobs, NOW))
    assert "lake/load-0" in page.text and "lake/load-199" in page.text
    assert "lake/load-200" not in page.text


class TestLooks:
    @pytest.mark.parametrize("colors", [LIGHT, DARK], ids=["light", "dark"])
    def test_contrast(self, colors: dict[str, str]) -> None:
        for ground in ("page", "panel"):
            for name in ("text", "muted", "link", "good", "bad", "wait"):
                assert contrast(colors[name], colors[ground]) >= 4.5, (name, ground)
            for name in ("kept", "candidate", "unchanged", "rewritten", "marked", "missing", "failed", "edge"):
                assert contrast(colors[name], colors[ground]) >= 3, (name, ground)
        for name in ("kept", "missing", "failed"):
            assert contrast(colors["on-fill"], colors[name]) >= 4.5, name

    def test_every_chart_is_told_in_words_and_has_its_numbers_beside(self, page: Element) -> None:
        drawn = [one for one in page.find("svg") if one.attributes.get("role") == "img"]
        assert len(drawn) > 20
        assert all(one.attributes["aria-label"] for one in drawn)
        others = [one for one in page.find("svg") if one.attributes.get("role") != "img"]
        hidden = {id(one) for parent in page.walk() if parent.attributes.get("aria-hidden") for one in parent.walk()}
        assert all(id(one) in hidden for one in others)
        for style in ("funnel", "lag"):
            around = [
                one for one in page.find("div") if any(style in str(c.attributes.get("class")) for c in kids(one))
            ]
            assert around and all(one.find("details") for one in around)

    def test_sections_can_be_reached_and_tables_be_read(self, page: Element) -> None:
        ids = {one.attributes["id"] for one in page.walk() if "id" in one.attributes}
        assert {one.attributes["href"][1:] for one in page.find("a")} <= ids
        assert all(one.find("caption") and one.find("th", scope="col") for one in page.find("table"))
        assert page.find("html")[0].attributes["lang"] == "en"

    def test_ids_that_are_used_exist(self, page: Element) -> None:
        ids = {one.attributes["id"] for one in page.walk() if "id" in one.attributes}
        fills = {one.attributes["fill"] for one in page.walk() if one.attributes.get("fill", "").startswith("url")}
        assert {fill[5:-1] for fill in fills} <= ids
        assert {one.attributes["href"][1:] for one in page.find("use")} <= ids


def kids(element: Element) -> list[Element]:
    return [child for child in element.children if isinstance(child, Element)]


def contrast(one: str, other: str) -> float:
    """The contrast of two colors by WCAG 2.2."""

    def luminance(color: str) -> float:
        parts = [int(color[at : at + 2], 16) / 255 for at in (1, 3, 5)]
        red, green, blue = (part / 12.92 if part <= 0.04045 else ((part + 0.055) / 1.055) ** 2.4 for part in parts)
        return 0.2126 * red + 0.7152 * green + 0.0722 * blue

    dark, light = sorted((luminance(one), luminance(other)))
    return (light + 0.05) / (dark + 0.05)


class TestProgram:
    def run(self, *arguments: str, given: str = "") -> subprocess.CompletedProcess[bytes]:
        command = [sys.executable, "-m", "skipstone_report", *arguments]
        return subprocess.run(command, input=given.encode(), capture_output=True, check=False, timeout=60)

    def test_it_writes_the_page_of_files_and_of_its_input(self, tmp_path: Path) -> None:
        half = tmp_path / "tables.json"
        half.write_text(json.dumps({"apiVersion": "v1", "kind": "List", "items": [maintained_table()]}))
        done = self.run(str(half), "-", given=json.dumps(objects.index()))
        assert done.returncode == 0, done.stderr
        page = read_page(done.stdout.decode())
        assert "lake/flights" in page.text and "by-tail" in page.text

    @pytest.mark.parametrize(
        ("arguments", "given", "said"),
        [
            ((), "", "name at least one file"),
            (("--help",), "", "name at least one file"),
            (("/nowhere.json",), "", "/nowhere.json: No such file or directory"),
            (("-",), "kubectl", "- is not JSON"),
            (("-",), "[" * 100_000, "- is not JSON"),
            *((("-",), given, "- holds no Kubernetes objects") for given in ("[]", "null", "7", '"x"', "{}")),
            (("-",), '{"kind": "Status", "status": "Failure", "message": "no"}', "- holds no Kubernetes objects"),
        ],
    )
    def test_what_it_cannot_use_it_names(self, arguments: tuple[str, ...], given: str, said: str) -> None:
        done = self.run(*arguments, given=given)
        assert (done.returncode, done.stdout) == (1, b"")
        assert said in done.stderr.decode() and done.stderr.count(b"\n") == 1

    @pytest.mark.parametrize(
        ("redirected", "code", "said"),
        [
            (">/dev/full", 1, "skipstone_report: the page cannot be written: No space left"),
            (">&-", 1, "skipstone_report: the standard output is closed"),
            ("<&-", 1, "skipstone_report: the standard input is closed"),
            ("| true", 0, ""),
        ],
    )
    def test_it_ends_without_a_traceback(self, redirected: str, code: int, said: str) -> None:
        given = json.dumps({"items": many(maintained_table(), 100)})
        command = ["bash", "-o", "pipefail", "-c", f"{sys.executable} -m skipstone_report - {redirected}"]
        done = subprocess.run(command, input=given.encode(), capture_output=True, check=False, timeout=60)
        assert done.returncode == code and done.stderr.decode().startswith(said)
        assert done.stderr.count(b"\n") == bool(said)


def test_the_input_is_left_as_it_is() -> None:
    given = sample()
    before = deepcopy(given)
    render_report(given, NOW)
    assert given == before
    assert at(hours=1) == "2026-03-01T11:00:00Z"
