"""Signs what was pushed, with a key of the user's and cosign. Nothing is told to a transparency log."""

from __future__ import annotations

import os
import shutil
from dataclasses import dataclass
from pathlib import Path

from release.artifacts import Pushed
from tests.cluster.errors import ClusterError
from tests.cluster.shell import run, stage

#: cosign 3 asks a server for where to sign by default; with a key there is nothing to ask for.
OFFLINE = ("--tlog-upload=false", "--use-signing-config=false", "--new-bundle-format=false", "--yes")


@dataclass(frozen=True)
class Signer:
    """cosign and the key: a file, or an address of a key service that cosign knows."""

    cosign: str
    key: str

    @staticmethod
    def find(cosign: str, key: str) -> Signer:
        """The program and the key that a person named. Raises ClusterError."""
        if not key:
            raise ClusterError("KEY is not set: name cosign's private key, for example KEY=cosign.key")
        if "://" not in key and not Path(key).is_file():
            raise ClusterError(f"KEY={key} is no file: make one by 'cosign generate-key-pair', or name a key service")
        if "://" not in key and "COSIGN_PASSWORD" not in os.environ:
            raise ClusterError("COSIGN_PASSWORD is not set: set it to the password of the key, empty if it has none")
        if shutil.which(cosign) is None:
            raise ClusterError(f"{cosign} is not installed: install cosign, or name it by COSIGN=/path/to/cosign")
        return Signer(cosign, key)

    def sign(self, pushed: Pushed) -> None:
        """Sign by digest, and attach the bill of materials as a signed attestation."""
        with stage(f"sign {pushed.name}"):
            run([self.cosign, "sign", "--key", self.key, *OFFLINE, pushed.exact])
            if pushed.bill is not None:
                bill = ("--type", "cyclonedx", "--predicate", pushed.bill)
                run([self.cosign, "attest", "--key", self.key, *OFFLINE, *bill, pushed.exact])

    def sign_file(self, path: Path) -> Path:
        """Sign a file; the signature lies beside it."""
        signature = path.with_name(f"{path.name}.sig")
        with stage(f"sign {path.name}"):
            run([self.cosign, "sign-blob", "--key", self.key, *OFFLINE, "--output-signature", signature, path])
        return signature
