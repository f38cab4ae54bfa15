"""Why a site is not admitted, in words. NVFLARE is silent where a certificate is wrong; here the same connection is
made by hand, and what the other side says of it is told."""

import datetime
import email.utils
import socket
import ssl
from pathlib import Path
from typing import Any, NamedTuple

from fedroute.federation.folders import SiteFolder

PATIENCE = 5.0  # seconds for each step


class Way(NamedTuple):
    """fault: what is wrong, "" where nothing is. hub_clock: the hub's time as it says it, in seconds since 1970."""

    fault: str
    hub_clock: float | None = None


def why_not(folder: Path) -> str:
    """What may keep the site of this folder from being admitted, and the mend."""
    settings = SiteFolder(folder).settings()
    return fault_of(folder) or (
        f"the hub at {settings['host']}:{settings['port']} takes the certificate and has not answered yet: it may be "
        f"busy, or another site already runs under the name {settings['name']!r}; it is tried on"
    )


def fault_of(folder: Path) -> str:
    """What certainly keeps it out; "" where nothing is found."""
    site = SiteFolder(folder)
    settings = site.settings()
    own = _common_name(_decoded(site.kit / "startup" / "client.crt"))
    if own != settings["name"]:
        return f"the certificate here is that of {own!r}, and this site calls itself {settings['name']!r}: join again"
    return reach(site.kit / "startup", settings["host"], settings["port"], settings["hub"]).fault


def reach(startup: Path, host: str, port: int, hub: str) -> Way:
    """The way to the hub, and what both sides say of the other's certificate.

    hub: the name in the hub's certificate."""
    where = f"{host}:{port}"
    try:
        plain = socket.create_connection((host, port), PATIENCE)
    except socket.gaierror as e:
        return Way(f"the name {host} is not known here ({e.strerror}): mend the name, or DNS")
    except OSError as e:
        words = str(e.strerror or e).lower()
        return Way(
            f"no connection to {where} ({words}): is the hub running, and is this port open outbound in the firewall?"
        )
    with plain:
        return _handshake(plain, startup, where, hub)


def _handshake(plain: socket.socket, startup: Path, where: str, hub: str) -> Way:
    context = ssl.create_default_context(cafile=str(startup / "rootCA.pem"))
    context.check_hostname = False  # NVFLARE names its cells and not its hosts: the name is looked at below
    context.load_cert_chain(startup / "client.crt", startup / "client.key")
    try:
        with context.wrap_socket(plain) as secure:
            secure.settimeout(PATIENCE)
            if (name := _common_name(secure.getpeercert())) != hub:
                return Way(f"at {where} answers {name!r} and not the hub {hub!r}: mend the address")
            # in TLS 1.3 the hub looks at our certificate after the handshake, and says so in answer to the first bytes
            secure.sendall(b"GET / HTTP/1.1\r\nHost: fedroute\r\nConnection: close\r\n\r\n")
            if not (said := secure.recv(4096)):
                return Way(f"the hub at {where} does not take this site's certificate: {OTHER}")
    except ssl.SSLCertVerificationError as e:
        return Way(
            f"the hub at {where} shows a certificate that this site's CA did not sign ({e.verify_message}): is the "
            "address right, and the clock here?"
        )
    except ssl.SSLError as e:
        if "alert" in str(e).lower():
            return Way(f"the hub at {where} does not take this site's certificate: {OTHER}")
        return Way(f"what answers at {where} is no hub (TLS: {e.reason})")
    except OSError as e:
        return Way(f"the connection to {where} broke ({str(e.strerror or e).lower()})")
    return Way("", _clock(said))


def _clock(answer: bytes) -> float | None:
    for line in answer.split(b"\r\n"):
        if line.lower().startswith(b"date:"):
            return email.utils.parsedate_to_datetime(line[5:].decode("ascii", "replace").strip()).timestamp()
    return None


OTHER = "it was signed by another CA, or is over; ask the hub to sign a new request"


def _common_name(certificate: Any) -> str:
    return str(dict(pair[0] for pair in certificate["subject"]).get("commonName", ""))


def days_left(certificate: Path, now: datetime.datetime) -> float:
    """Days until the certificate ends; negative where it has, minus infinity where it has not begun."""
    found = _decoded(certificate)
    begins, ends = (
        datetime.datetime.fromtimestamp(ssl.cert_time_to_seconds(found[k]), datetime.UTC)
        for k in ("notBefore", "notAfter")
    )
    return float("-inf") if now < begins else (ends - now) / datetime.timedelta(days=1)


def _decoded(certificate: Path) -> dict[str, Any]:
    """A certificate's fields by the standard library alone; what `ssl`'s own tests read them with."""
    found: dict[str, Any] = ssl._ssl._test_decode_cert(str(certificate))  # type: ignore[attr-defined]
    return found
