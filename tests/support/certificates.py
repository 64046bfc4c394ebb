"""Certificates for tests of TLS."""

from __future__ import annotations

import datetime
from pathlib import Path

from cryptography import x509
from cryptography.hazmat.primitives import hashes, serialization
from cryptography.hazmat.primitives.asymmetric import ec
from cryptography.x509.oid import NameOID


def certificate(folder: Path, name: str, issuer: tuple[Path, Path] | None) -> tuple[Path, Path]:
    """A certificate and its key, signed by the issuer or by itself. It is valid for localhost."""
    key = ec.generate_private_key(ec.SECP256R1())
    subject = x509.Name([x509.NameAttribute(NameOID.COMMON_NAME, name)])
    signer, signing_key = subject, key
    if issuer is not None:
        signer = x509.load_pem_x509_certificate(issuer[0].read_bytes()).subject
        loaded = serialization.load_pem_private_key(issuer[1].read_bytes(), None)
        assert isinstance(loaded, ec.EllipticCurvePrivateKey)
        signing_key = loaded
    now = datetime.datetime.now(datetime.UTC)
    made = (
        x509.CertificateBuilder()
        .subject_name(subject)
        .issuer_name(signer)
        .public_key(key.public_key())
        .serial_number(x509.random_serial_number())
        .not_valid_before(now - datetime.timedelta(hours=1))
        .not_valid_after(now + datetime.timedelta(hours=1))
        .add_extension(x509.SubjectAlternativeName([x509.DNSName("localhost")]), critical=False)
        .add_extension(x509.BasicConstraints(ca=issuer is None, path_length=None), critical=True)
        .sign(signing_key, hashes.SHA256())
    )
    files = folder / f"{name}.pem", folder / f"{name}.key"
    files[0].write_bytes(made.public_bytes(serialization.Encoding.PEM))
    files[1].write_bytes(
        key.private_bytes(
            serialization.Encoding.PEM, serialization.PrivateFormat.PKCS8, serialization.NoEncryption()
        )
    )
    return files
