"""Why a gateway cannot be reached, in words for who asks: TLS where none is spoken, or none where it is; a certificate
that is not trusted; nobody there."""

import ssl
from pathlib import Path
from typing import Any, NamedTuple
from urllib.parse import urlsplit

from fedroute.errors import InputError

PATIENCE = 2.0  # seconds in which somebody who speaks TLS has begun to
NO_TLS = {"WRONG_VERSION_NUMBER", "PACKET_LENGTH_TOO_LONG", "RECORD_LAYER_FAILURE", "HTTP_REQUEST"}  # OpenSSL's reasons
TIME, NAME = {9, 10}, {62, 64}  # what OpenSSL calls it where a certificate is not of now, or not of this name


class Why(NamedTuple):
    """error, mend: as of a refusal; lasting: whether it is of no use to try again."""

    error: str
    mend: str
    lasting: bool = False


def why_not(url: str, e: Exception) -> Why:
    """Of what was raised when `url` was asked. Where a gateway hangs up on plain HTTP it is tried whether it speaks
    TLS."""
    import httpx

    if fault := _of_tls(e):
        return _tls(url, fault)
    hung_up = isinstance(e, httpx.RemoteProtocolError | httpx.ReadError)
    if hung_up and url.lower().startswith("http://") and _speaks_tls(url):
        return Why(f"{url}: HTTPS is spoken there, and nothing else", f"ask at https{url[4:]}", True)
    return Why(f"{url}: nobody answered ({type(e).__name__}: {e})", "is it running?")


def trusted(verify: bool | str | Path) -> Any:
    """What httpx takes for `verify`. Raises InputError where the file of certificates cannot be used."""
    if isinstance(verify, bool):
        return verify
    mend = "give a PEM file with the certificates to trust"
    try:
        return ssl.create_default_context(cafile=verify)
    except ssl.SSLError:
        raise InputError(f"verify: {verify}: holds no certificate; {mend}") from None
    except OSError as e:
        raise InputError(f"verify: {verify}: cannot be read ({(e.strerror or str(e)).lower()}); {mend}") from None


def _of_tls(e: BaseException | None) -> ssl.SSLError | None:
    while e is not None and not isinstance(e, ssl.SSLError):
        e = e.__cause__ or e.__context__
    return e


def _tls(url: str, fault: ssl.SSLError) -> Why:
    if isinstance(fault, ssl.SSLCertVerificationError):
        mend = "give verify=FILE, a PEM file with this certificate or that of who signed it"
        if fault.verify_code in TIME:
            mend = "let it be renewed; and is this machine's clock right?"
        elif fault.verify_code in NAME:
            mend = "ask under a name that is in the certificate, or let it be made for this one"
        return Why(f"{url}: its certificate is not trusted ({fault.verify_message.rstrip('.')})", mend, True)
    reason = fault.reason or str(fault)
    mend = f"ask at http{url[5:]} where the gateway has no certificate"
    return Why(f"{url}: no TLS is spoken there, or not as here ({reason})", mend, reason in NO_TLS)


def _speaks_tls(url: str) -> bool:
    import socket

    at, context = urlsplit(url), ssl.create_default_context()
    context.check_hostname, context.verify_mode = False, ssl.CERT_NONE  # nothing is sent, nor believed
    try:
        with socket.create_connection((at.hostname or "", at.port or 80), PATIENCE) as plain:
            plain.settimeout(PATIENCE)
            with context.wrap_socket(plain, server_hostname=at.hostname):
                return True
    except (OSError, ValueError):
        return False
