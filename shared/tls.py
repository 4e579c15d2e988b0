"""The certificate that a server shows: read again when its files change, at the next handshake, without a restart."""

from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path

import grpc
import structlog

log = structlog.get_logger()


@dataclass(frozen=True, slots=True)
class Files:
    """PEM files. With `client_ca` only clients are served that show a certificate of one of these authorities."""

    certificate: Path
    key: Path
    client_ca: Path | None = None

    def paths(self) -> Sequence[Path]:
        return [path for path in (self.certificate, self.key, self.client_ca) if path]


class Unusable(ValueError):
    """These files are not there, or no certificate with its key."""


def read(files: Files) -> grpc.ServerCertificateConfiguration:
    """Raises Unusable: grpc itself would say so at the first handshake."""
    from cryptography import x509  # with all that certificates have, for those who show one
    from cryptography.hazmat.primitives import serialization

    try:
        certificate, key, *authorities = [path.read_bytes() for path in files.paths()]
        held = serialization.load_pem_private_key(key, None).public_key()
        shown = x509.load_pem_x509_certificates(certificate)[0].public_key()
        for authority in authorities:
            x509.load_pem_x509_certificates(authority)
    except (OSError, ValueError, TypeError) as error:  # of the last kind: the key has a password
        raise Unusable("is no readable PEM certificate or unencrypted key") from error
    if shown != held:
        raise Unusable("the key is not the certificate's")
    return grpc.ssl_server_certificate_configuration([(key, certificate)], authorities[0] if authorities else None)


def credentials(files: Files) -> grpc.ServerCredentials:
    """Raises Unusable."""
    source = _Source(files)
    return grpc.dynamic_ssl_server_credentials(
        read(files),
        source.changed,  # type: ignore[arg-type]  # None is for unchanged, which the stubs do not know
        require_client_authentication=files.client_ca is not None,
    )


class _Source:
    """Files that are looked at before each handshake. A new pair that is no pair leaves the old one in use."""

    def __init__(self, files: Files) -> None:
        self._files = files
        self._seen = self._stamps()

    def changed(self) -> grpc.ServerCertificateConfiguration | None:
        """The new configuration; None: there is none. Called in a thread of grpc's."""
        try:
            stamps = self._stamps()
            if stamps == self._seen:
                return None
            found = read(self._files)
        except (OSError, Unusable) as error:  # perhaps half of it is written: every handshake looks again
            log.error("tls.unusable", exc_info=error)
            return None
        self._seen = stamps
        log.info("tls.reloaded")
        return found

    def _stamps(self) -> Sequence[tuple[int, int, int]]:
        stats = [path.stat() for path in self._files.paths()]
        return [(stat.st_ino, stat.st_mtime_ns, stat.st_size) for stat in stats]
