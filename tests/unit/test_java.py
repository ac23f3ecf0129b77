"""Which Java a run that needs Spark finds, and what is said when there is none that it can use."""

from __future__ import annotations

from pathlib import Path

import pytest
from skipstone.jvm import find_java_problem
from skipstone.session import spark_session
from skipstone_core.contract.requests import CatalogRef, CatalogType, JobRequest, RunKind, WarehouseRef
from skipstone_core.errors import BadSpec
from skipstone_core.reasons import Reason


def install(folder: Path, release: str | None) -> Path:
    """A Java in ``folder``; the home of it."""
    java = folder / "java home" / "bin" / "java"
    java.parent.mkdir(parents=True)
    java.touch(mode=0o755)
    if release is not None:
        (java.parents[1] / "release").write_text(f'IMPLEMENTOR="x"\nJAVA_VERSION="{release}"\n')
    return java.parents[1]


@pytest.mark.parametrize("release", ["17.0.15", "21", "25.0.1", None, "odd"])
def test_a_java_that_spark_can_use_is_found_by_its_home_or_by_the_path(tmp_path: Path, release: str | None) -> None:
    home = install(tmp_path, release)
    assert find_java_problem({"JAVA_HOME": str(home), "PATH": "/nonexistent"}) is None
    assert find_java_problem({"PATH": f"/nonexistent:{home}/bin"}) is None


def test_a_link_leads_to_the_release_of_what_it_names(tmp_path: Path) -> None:
    home, folder = install(tmp_path, "11.0.2"), tmp_path / "bin"
    folder.mkdir()
    (folder / "java").symlink_to(home / "bin" / "java")
    assert "Java 11 " in str(find_java_problem({"PATH": str(folder)}))


@pytest.mark.parametrize(("release", "version"), [("11.0.2", 11), ("1.8.0_402", 8), ("16", 16)])
def test_a_java_that_is_too_old_is_named(tmp_path: Path, release: str, version: int) -> None:
    home = install(tmp_path, release)
    said = str(find_java_problem({"JAVA_HOME": str(home)}))
    assert said.startswith(
        f"this run needs Spark, which does not run on Java {version} ({home}/bin/java): install Java 17"
    )


def test_a_home_without_java_hides_that_of_the_path(tmp_path: Path) -> None:
    home = install(tmp_path, "17")
    said = str(find_java_problem({"JAVA_HOME": "/nonexistent", "PATH": f"{home}/bin"}))
    assert said.startswith("this run needs Spark, and there is no Java in /nonexistent: install Java 17 or newer (")


def test_a_session_without_java_is_refused_with_the_way_out(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("PATH", "/nonexistent")
    monkeypatch.delenv("JAVA_HOME", raising=False)
    warehouse = WarehouseRef(name="w", catalog=CatalogRef(type=CatalogType.SQL), root="/w")
    request = JobRequest(
        kind=RunKind.CHECK,
        run_id="r",
        attempt=1,
        warehouse=warehouse,
        owner_kind="Table",
        owner_name="t",
        owner_uid="u",
    )
    with pytest.raises(BadSpec, match="there is no Java in PATH: install Java 17") as caught:
        spark_session(request)
    assert caught.value.reason is Reason.JAVA_MISSING
