"""The jars that tests fetch: an empty cache is filled by what the module file says."""

from __future__ import annotations

import subprocess
from pathlib import Path

import pytest

from tests.spark import jars

NOWHERE = ("dev.skipstone.tests:no-such-artifact:1.0",)


def test_ivy_reads_the_file_that_lists_the_jars(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """A full cache hides a mistake in it. Nothing is listed, so nothing is fetched."""
    monkeypatch.setattr(jars, "CACHE", tmp_path)
    assert jars.jar_paths("none", ()) == []
    assert (tmp_path / "none" / "coordinates").exists()


def test_a_folder_of_jars_that_is_not_whole_is_not_taken(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    def fails(*_: object, **__: object) -> None:
        raise subprocess.CalledProcessError(1, "java")

    monkeypatch.setattr(jars, "CACHE", tmp_path)
    with monkeypatch.context() as offline:
        offline.setattr(subprocess, "run", fails)
        for _ in range(2):
            with pytest.raises(subprocess.CalledProcessError):
                jars.jar_paths("some", NOWHERE)
    assert not (tmp_path / "some" / "coordinates").exists()
