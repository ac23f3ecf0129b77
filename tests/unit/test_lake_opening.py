"""``skipstone.open`` where a package is not installed that the extra ``local`` brings."""

from __future__ import annotations

from importlib.metadata import EntryPoint
from pathlib import Path

import pytest
from skipstone import lakes
from skipstone_core.errors import LakeError, way_to_install


@pytest.mark.parametrize(
    ("entries", "sentence"),
    [
        ((), "skipstone.open needs the extra local"),
        (
            (EntryPoint("lake", "package_that_is_not_there.lake:open_lake", "skipstone.local"),),
            "skipstone.open needs package_that_is_not_there, which is not installed",
        ),
    ],
)
def test_a_package_that_is_not_installed_is_named_with_the_way_to_install_it(
    entries: tuple[EntryPoint, ...], sentence: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(lakes, "entry_points", lambda **_: entries)
    with pytest.raises(LakeError) as refused:
        lakes.open_lake(tmp_path)
    assert (refused.value.reason, refused.value.sentence) == ("PackageMissing", sentence)
    assert refused.value.way_out == way_to_install("local")
