"""Certificates and kubeconfig files of one control plane.

Used by `controlplane` and `node`. Made with openssl at the first start, kept as long as the state folder, valid for a
year, readable by the owner only. They protect nothing but a test cluster on this machine.
"""

from __future__ import annotations

import json
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path

from tests.cluster.layout import StateDir
from tests.cluster.shell import run

DAYS = "365"


@dataclass(frozen=True)
class Subject:
    """Who a certificate speaks for: file name, common name, groups, and the server names it may answer to."""

    file: str
    name: str
    groups: Sequence[str] = ()
    alternatives: Sequence[str] = ()


def build_authority(state: StateDir) -> Path:
    """Return the cluster's certificate authority, made if absent, with the key that signs service account tokens."""
    certificate = state.pki / "ca.crt"
    if certificate.exists():
        return certificate
    state.pki.mkdir(parents=True, exist_ok=True)
    state.pki.chmod(0o700)
    _make_key(state.pki / "sa.key")
    run(["openssl", "pkey", "-in", state.pki / "sa.key", "-pubout", "-out", state.pki / "sa.pub"])
    _make_key(state.pki / "ca.key")
    request: list[str | Path] = [
        "openssl",
        "req",
        "-x509",
        "-new",
        "-key",
        state.pki / "ca.key",
        "-subj",
        "/CN=skipstone-test-ca",
    ]
    run([*request, "-days", DAYS, "-out", certificate])
    return certificate


def issue_certificate(state: StateDir, subject: Subject) -> tuple[Path, Path]:
    """Return (certificate, key) for `subject`, made if absent."""
    certificate, key = state.pki / f"{subject.file}.crt", state.pki / f"{subject.file}.key"
    if certificate.exists():
        return certificate, key
    _make_key(key)
    groups = "".join(f"/O={group}" for group in subject.groups)
    request = run(["openssl", "req", "-new", "-key", key, "-subj", f"{groups}/CN={subject.name}"])
    extensions = state.pki / f"{subject.file}.ext"
    extensions.write_text(_render_extensions(subject))
    sign: list[str | Path] = [
        "openssl",
        "x509",
        "-req",
        "-CA",
        state.pki / "ca.crt",
        "-CAkey",
        state.pki / "ca.key",
        "-days",
        DAYS,
    ]
    text = run([*sign, "-CAcreateserial", "-extfile", extensions], text_input=request)
    certificate.write_text(text)
    return certificate, key


def write_kubeconfig(path: Path, *, url: str, ca: Path, user: dict[str, str]) -> Path:
    """Write a kubeconfig (JSON, which kubectl reads) with `user` as its credentials; readable by the owner only."""
    document = {
        "apiVersion": "v1",
        "kind": "Config",
        "clusters": [{"name": "skipstone", "cluster": {"certificate-authority": str(ca), "server": url}}],
        "users": [{"name": "user", "user": user}],
        "contexts": [{"name": "skipstone", "context": {"cluster": "skipstone", "user": "user"}}],
        "current-context": "skipstone",
    }
    path.parent.mkdir(parents=True, exist_ok=True)
    path.touch(mode=0o600)
    path.write_text(json.dumps(document, indent=1) + "\n")
    return path


def issue_kubeconfig(state: StateDir, subject: Subject, *, url: str, path: Path | None = None) -> Path:
    """Return a kubeconfig whose client certificate speaks for `subject`."""
    certificate, key = issue_certificate(state, subject)
    user = {"client-certificate": str(certificate), "client-key": str(key)}
    target = path or state.pki / f"{subject.file}.kubeconfig"
    return write_kubeconfig(target, url=url, ca=state.pki / "ca.crt", user=user)


def _make_key(path: Path) -> None:
    path.touch(mode=0o600)
    run(["openssl", "genpkey", "-algorithm", "EC", "-pkeyopt", "ec_paramgen_curve:P-256", "-out", path])


def _render_extensions(subject: Subject) -> str:
    lines = ["extendedKeyUsage=serverAuth,clientAuth"]
    if subject.alternatives:
        lines.append(f"subjectAltName={','.join(subject.alternatives)}")
    return "\n".join(lines) + "\n"
