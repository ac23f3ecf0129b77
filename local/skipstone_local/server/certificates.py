"""The server's certificate: kubectl and its like send a token over TLS only, and to the server that they know."""

from __future__ import annotations

import os
from datetime import UTC, datetime, timedelta
from ipaddress import ip_address
from pathlib import Path

from cryptography import x509
from cryptography.hazmat.primitives import hashes
from cryptography.hazmat.primitives.asymmetric import ec
from cryptography.hazmat.primitives.serialization import Encoding, NoEncryption, PrivateFormat
from cryptography.x509.oid import ExtendedKeyUsageOID, NameOID

from skipstone_local.places import RootFolder

LIFETIME = timedelta(days=3650)
#: A certificate that has less left is made again.
SPARE = timedelta(days=30)
#: For clocks that are a little behind.
SLACK = timedelta(hours=1)
USAGES = (
    "digital_signature", "content_commitment", "key_encipherment", "data_encipherment", "key_agreement",
    "key_cert_sign", "crl_sign", "encipher_only", "decipher_only",
)  # fmt: skip


def ensure_certificate(folder: RootFolder) -> None:
    """Make the certificates of a root folder, unless they are there and last. Only their owner may read the key."""
    if _lasts(folder.authority) and _lasts(folder.certificate):
        return
    now = datetime.now(UTC)
    root_key, key = ec.generate_private_key(ec.SECP256R1()), ec.generate_private_key(ec.SECP256R1())
    root_name = x509.Name([x509.NameAttribute(NameOID.COMMON_NAME, "skipstone-local-ca")])
    # Nobody keeps the key of the authority: it signs this one certificate.
    root = _authority(root_name, root_key, now)
    name = x509.Name([x509.NameAttribute(NameOID.COMMON_NAME, "skipstone-local")])
    own = (
        _begin(name, root_name, key.public_key(), now)
        .add_extension(x509.BasicConstraints(ca=False, path_length=None), critical=True)
        .add_extension(_usage("digital_signature"), critical=True)
        .add_extension(x509.ExtendedKeyUsage([ExtendedKeyUsageOID.SERVER_AUTH]), critical=False)
        .add_extension(
            x509.SubjectAlternativeName([x509.IPAddress(ip_address("127.0.0.1")), x509.DNSName("localhost")]),
            critical=False,
        )
        .add_extension(x509.AuthorityKeyIdentifier.from_issuer_public_key(root_key.public_key()), critical=False)
        .sign(root_key, hashes.SHA256())
    )
    private = key.private_bytes(Encoding.PEM, PrivateFormat.PKCS8, NoEncryption())
    write_private(folder.certificate, own.public_bytes(Encoding.PEM) + private)
    write_private(folder.authority, root.public_bytes(Encoding.PEM))


def write_private(path: Path, content: bytes) -> None:
    """Write a file whole or not at all; only its owner may read it."""
    draft = path.with_name(f"{path.name}.{os.getpid()}")
    descriptor = os.open(draft, os.O_WRONLY | os.O_CREAT | os.O_TRUNC | os.O_CLOEXEC, 0o600)
    with os.fdopen(descriptor, "wb") as file:
        file.write(content)
        file.flush()
        os.fsync(descriptor)
    draft.replace(path)


def _lasts(path: Path) -> bool:
    try:
        certificate = x509.load_pem_x509_certificate(path.read_bytes())
    except (OSError, ValueError):
        return False
    return certificate.not_valid_after_utc - datetime.now(UTC) > SPARE


def _begin(
    name: x509.Name, issuer: x509.Name, key: ec.EllipticCurvePublicKey, now: datetime
) -> x509.CertificateBuilder:
    return (
        x509.CertificateBuilder()
        .subject_name(name)
        .issuer_name(issuer)
        .public_key(key)
        .serial_number(x509.random_serial_number())
        .not_valid_before(now - SLACK)
        .not_valid_after(now + LIFETIME)
        .add_extension(x509.SubjectKeyIdentifier.from_public_key(key), critical=False)
    )


def _authority(name: x509.Name, key: ec.EllipticCurvePrivateKey, now: datetime) -> x509.Certificate:
    return (
        _begin(name, name, key.public_key(), now)
        .add_extension(x509.BasicConstraints(ca=True, path_length=0), critical=True)
        .add_extension(_usage("key_cert_sign"), critical=True)
        .sign(key, hashes.SHA256())
    )


def _usage(name: str) -> x509.KeyUsage:
    return x509.KeyUsage(**{usage: usage == name for usage in USAGES})
