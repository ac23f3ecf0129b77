"""What `make release` is told, and that everything of a version has the same one."""

from __future__ import annotations

from pathlib import Path

import pytest
import yaml

from release.__main__ import main
from release.artifacts import Pushed, write_sums
from release.signing import Signer
from release.versions import CHART, IMAGES, Registry, chart_version, check_one_version, read_version, wheel_versions
from tests.cluster.errors import ClusterError


def test_chart_images_and_packages_have_one_version() -> None:
    chart = yaml.safe_load((CHART / "Chart.yaml").read_text())
    image = yaml.safe_load((CHART / "values.yaml").read_text())["image"]
    version = chart_version()
    assert chart["version"] == chart["appVersion"] == version
    assert {part: image[part] for part in IMAGES} == {part: f"{name}:{version}" for part, name in IMAGES.items()}
    assert set(wheel_versions().values()) == {version}
    check_one_version(version)


@pytest.mark.parametrize("place", ["registry.example.com/team", "localhost:5000", "127.0.0.1:5000/a/b", "r.io"])
def test_a_registry_is_a_host_and_a_path(place: str) -> None:
    assert Registry.read(place).image("spark", "0.2.0") == f"{place}/skipstone-spark:0.2.0"


@pytest.mark.parametrize("place", ["", "https://r.io", "oci://r.io/team", "r.io/Team", "team", "r.io/", "r.io:x/y"])
def test_what_is_no_registry_is_refused(place: str) -> None:
    with pytest.raises(ClusterError, match="REGISTRY"):
        Registry.read(place)


@pytest.mark.parametrize(
    ("place", "plain"),
    [("localhost:5000/a", True), ("127.0.0.1:5000", True), ("127.0.0.1.example.com", False), ("localhost.org", False)],
)
def test_only_a_loopback_address_is_spoken_to_without_tls(place: str, *, plain: bool) -> None:
    assert Registry.read(place).is_plain is plain


def test_the_version_is_that_of_the_chart_unless_told() -> None:
    assert read_version("") == chart_version()
    assert read_version("1.2.3-rc.1") == "1.2.3-rc.1"


@pytest.mark.parametrize("version", ["1.2", "v1.2.3", "1.2.3+build", "01.2.3", "latest"])
def test_what_is_no_version_is_refused(version: str) -> None:
    with pytest.raises(ClusterError, match=f"VERSION={version.replace('+', '.')} "):
        read_version(version)


def test_wheels_of_another_version_are_refused() -> None:
    with pytest.raises(ClusterError, match=r"VERSION=99.0.0, but pyproject.toml says "):
        check_one_version("99.0.0")


def test_a_key_and_its_password_are_asked_for_before_anything_is_built(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.delenv("COSIGN_PASSWORD", raising=False)
    key = tmp_path / "cosign.key"
    for given, named in (("", "KEY is not set"), (str(key), "is no file")):
        assert main(["publish"], {"REGISTRY": "r.io", "KEY": given}) == 1
        assert named in capsys.readouterr().err
    key.touch()
    with pytest.raises(ClusterError, match="COSIGN_PASSWORD is not set"):
        Signer.find("sh", str(key))
    monkeypatch.setenv("COSIGN_PASSWORD", "")
    with pytest.raises(ClusterError, match="no-such-program is not installed"):
        Signer.find("no-such-program", str(key))
    assert Signer.find("sh", "awskms://alias/key").key == "awskms://alias/key"


def test_sums_name_files_as_they_lie_beside_them(tmp_path: Path) -> None:
    wheels = tmp_path / "wheels"
    wheels.mkdir()
    (wheels / "a.whl").write_bytes(b"a")
    write_sums([wheels / "a.whl"], tmp_path / "SHA256SUMS")
    digest = "ca978112ca1bbdcafac231b39a23dc4da786eff8147c4e72b9807785afee48bb"
    assert (tmp_path / "SHA256SUMS").read_text() == f"{digest}  wheels/a.whl\n"


def test_a_pushed_image_is_named_by_its_digest() -> None:
    pushed = Pushed("r.io/team/skipstone-spark", "0.2.0", "sha256:1")
    assert (pushed.exact, pushed.tagged) == (
        "r.io/team/skipstone-spark@sha256:1",
        "r.io/team/skipstone-spark:0.2.0@sha256:1",
    )
