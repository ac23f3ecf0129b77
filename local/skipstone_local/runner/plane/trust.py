"""Authorities of a Warehouse's own, trusted by a run besides those of the system: by Python, by Arrow and by Java.

Each of them takes one file with all authorities. The image's entrypoint does the same in a pod.
"""

from __future__ import annotations

import os
import re
import shutil
import ssl
import subprocess
from collections.abc import Mapping
from pathlib import Path

from skipstone_local.runner.environment import CannotMake

_CERTIFICATE = re.compile(rb"-----BEGIN CERTIFICATE-----.+?-----END CERTIFICATE-----", re.DOTALL)
_PASSWORD = "changeit"


def trust(bundle: Path, folder: Path, environment: Mapping[str, str]) -> dict[str, str]:
    """The variables by which a process trusts what is in ``bundle``, too; its files are made in ``folder``.

    ``environment``: that of the process. Without Java only Python and Arrow are told. Raises CannotMake.
    """
    try:
        certificates = _CERTIFICATE.findall(bundle.read_bytes())
    except OSError:
        raise _refused(bundle, "there is no such file") from None
    if not certificates:
        raise _refused(bundle, "there are none")
    folder.mkdir(exist_ok=True)
    together = folder / "ca.pem"
    together.write_bytes(b"\n".join([_read_system(environment), *certificates, b""]))
    variables = {"SSL_CERT_FILE": str(together), "REQUESTS_CA_BUNDLE": str(together)}
    store = _make_store(bundle, certificates, folder, environment)
    if store is None:
        return variables
    options = f'{environment.get("JAVA_TOOL_OPTIONS", "")} "-Djavax.net.ssl.trustStore={store}"'
    return variables | {"JAVA_TOOL_OPTIONS": options.strip()}


def _read_system(environment: Mapping[str, str]) -> bytes:
    for path in (environment.get("SSL_CERT_FILE"), ssl.get_default_verify_paths().cafile):
        if path and Path(path).is_file():
            return Path(path).read_bytes()
    return b""


def _make_store(bundle: Path, certificates: list[bytes], folder: Path, environment: Mapping[str, str]) -> Path | None:
    java = shutil.which("java", path=f"{environment.get('JAVA_HOME', '')}/bin{os.pathsep}{environment.get('PATH', '')}")
    if java is None:
        return None
    home = Path(java).resolve().parents[1]
    given, keytool, store = home / "lib" / "security" / "cacerts", home / "bin" / "keytool", folder / "cacerts"
    if not given.is_file() or not keytool.is_file():
        return None
    shutil.copyfile(given, store)
    for number, certificate in enumerate(certificates, 1):
        (folder / "certificate.pem").write_bytes(certificate + b"\n")
        command = [str(keytool), "-importcert", "-noprompt", "-keystore", str(store), "-storepass", _PASSWORD]
        command += ["-alias", f"skipstone-{number}", "-file", str(folder / "certificate.pem")]
        if subprocess.run(command, capture_output=True, check=False).returncode != 0:
            raise _refused(bundle, f"number {number} is not a certificate")
    return store


def _refused(bundle: Path, why: str) -> CannotMake:
    return CannotMake(
        f"the certificates in {bundle.name} cannot be used: {why}; put PEM certificates of authorities there"
    )
