"""What a client says where it does not get through: real sockets, with TLS and without, and wrong certificates."""

import socket
import ssl
import threading
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import httpx
import pytest

from fedroute import Router
from fedroute.errors import InputError
from fedroute.service import Client, ServiceError
from fedroute.service.answers import Own
from fedroute.service.gateway import make_site_app
from fedroute.service.running import serve_in_thread
from fedroute.service.unreached import why_not
from tests.service.conftest import certificate


@pytest.fixture
def tls(router: Router, tmp_path: Path) -> Iterator[tuple[str, Path]]:
    """(URL of a gateway with TLS, its certificate)."""
    made, key = certificate(tmp_path)
    running = serve_in_thread(make_site_app(Own.of(router, "east")), certificate=made, key=key)
    yield running.url, made
    running.stop()


def asked(url: str, **options: Any) -> ServiceError:
    """What is raised, at once: nothing of this is worth another try."""
    heard = list[str]()
    with Client(url, log=heard.append, **options) as c, pytest.raises(ServiceError) as e:
        c.schema()
    assert not heard
    assert e.value.status == 0
    return e.value


def test_tls_where_none_is_asked_for(tls: tuple[str, Path]) -> None:
    url = tls[0].replace("https", "http")
    told = asked(url)
    assert (told.error, told.mend) == (f"{url}: HTTPS is spoken there, and nothing else", f"ask at {tls[0]}")
    with Client(tls[0], verify=tls[1]) as c:
        assert c.schema()["labels"]


def test_tls_where_none_is_spoken(router: Router) -> None:
    running = serve_in_thread(make_site_app(Own.of(router, "east")))
    try:
        told = asked(running.url.replace("http", "https"))
        assert "no TLS is spoken there" in told.error
        assert told.mend == f"ask at {running.url} where the gateway has no certificate"
    finally:
        running.stop()


def test_a_certificate_that_nobody_vouches_for(tls: tuple[str, Path]) -> None:
    told = asked(tls[0])
    assert "its certificate is not trusted (self-signed certificate)" in told.error
    assert "verify=FILE" in told.mend


def test_a_certificate_of_another_name(router: Router, tmp_path: Path) -> None:
    made, key = certificate(tmp_path, "DNS:other.example")
    running = serve_in_thread(make_site_app(Own.of(router, "east")), certificate=made, key=key)
    try:
        told = asked(running.url, verify=made)
        assert "not valid for '127.0.0.1'" in told.error
        assert "ask under a name that is in the certificate" in told.mend
    finally:
        running.stop()


@pytest.mark.parametrize(("code", "words"), [(10, "clock"), (62, "under a name"), (20, "verify=FILE")])
def test_the_mend_is_of_the_fault(code: int, words: str) -> None:
    fault = ssl.SSLCertVerificationError()
    fault.verify_code, fault.verify_message = code, "so"
    outer = httpx.ConnectError("x")
    outer.__cause__ = fault
    why = why_not("https://gateway", outer)
    assert words in why.mend
    assert why.lasting


def test_who_hangs_up_without_tls_may_be_asked_again() -> None:
    with socket.socket() as s:
        s.bind(("127.0.0.1", 0))
        s.listen()

        def hang_up() -> None:
            s.accept()[0].close()

        thread = threading.Thread(target=hang_up)
        thread.start()
        url = f"http://127.0.0.1:{s.getsockname()[1]}"
        why = why_not(url, httpx.RemoteProtocolError("hung up"))
        thread.join()
    assert why == (f"{url}: nobody answered (RemoteProtocolError: hung up)", "is it running?", False)


def test_a_file_of_certificates_that_cannot_be_used_is_named(tmp_path: Path) -> None:
    none = tmp_path / "none.pem"
    with pytest.raises(InputError, match=r"verify: .*none\.pem: cannot be read \(no such file.*give a PEM file"):
        Client("https://gateway", verify=none)
    with pytest.raises(InputError, match=r"verify: .*cannot be read"):
        Client("https://gateway", verify=str(tmp_path))
    none.write_text("no certificate")
    with pytest.raises(InputError, match=r"verify: .*none\.pem: holds no certificate"):
        Client("https://gateway", verify=str(none))
