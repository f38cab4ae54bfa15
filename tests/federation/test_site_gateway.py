"""A site's own gateway: it answers with the model that is served, and nobody else learns of the case."""

import json
import threading
import time
from pathlib import Path

import httpx
import pytest

pytest.importorskip("fastapi")

from fedroute.errors import InputError
from fedroute.federation import kept_gateway, live_gateway
from fedroute.federation.folders import HubFolder, SiteFolder
from fedroute.federation.gateway_file import asked_at, read_gateway
from fedroute.federation.site_gateway import serve_own
from fedroute.router.spec import RouterSpec
from fedroute.service import Client, Edge
from fedroute.service.access import make_token
from tests.federation.federations import free_port
from tests.federation.whole import Whole, config

QUERY = {"age": 61, "pulse": 80, "sex": "f", "ward": "a"}
HERE = {"gateway": "127.0.0.1:8790", "tokens": None}
PRIVATE = {"name": "fedper"}


def settings(folder: Path, **more: object) -> None:
    folder.mkdir(exist_ok=True)
    (folder / "settings.json").write_text(json.dumps({"name": folder.name} | more))


def opened(url: str, at: str = "/readyz") -> None:
    end = time.monotonic() + 60
    while True:
        try:
            if httpx.get(url + at).status_code == 200:
                return
        except httpx.TransportError:
            pass
        assert time.monotonic() < end, url
        time.sleep(0.02)


def test_a_case_goes_to_the_site_alone(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """The guide and the addresses are the hub's; the answer is the site's, as it would be through the hub."""
    monkeypatch.setattr(kept_gateway, "SOON", 0.02)
    whole, stop = Whole(tmp_path), threading.Event()
    ports = {c: free_port() for c in whole.sites}
    own, threads = {c: f"http://127.0.0.1:{p}" for c, p in ports.items()}, []
    for client, site in whole.sites.items():
        settings(site.folder, gateway=f"127.0.0.1:{ports[client]}")
        threads.append(
            threading.Thread(target=serve_own, args=(SiteFolder(site.folder), site, stop, whole.said.append))
        )
        threads[-1].start()
    opened(own["east"], "/healthz")
    refused = httpx.post(f"{own['east']}/v1/answer", json={"query": QUERY})
    assert refused.status_code == 503  # not trained yet
    assert refused.json()["error"] == "there is no model yet"
    transport = whole.network
    hub = whole.hub(config(PRIVATE).model_copy(update={"router": RouterSpec(kind="auto")}))
    at, port = HubFolder(tmp_path / "hub"), free_port()
    settings(at.root, gateway=f"127.0.0.1:{port}")
    (at.root / "gateway.yaml").write_text(json.dumps({"addresses": own, "rate": 1000}))
    threads.append(threading.Thread(target=live_gateway.serve_live, args=(at, hub, transport, stop, whole.said.append)))
    threads[-1].start()
    try:
        hub.run()
        opened(f"http://127.0.0.1:{port}")
        with Client(f"http://127.0.0.1:{port}") as asked:
            through = asked.predict(QUERY)
            edge = Edge.of(asked)
            calls: list[str] = []
            monkeypatch.setattr(type(transport), "call", lambda *a: calls.append("call"))
            alone = edge.predict(QUERY)
            monkeypatch.undo()
        keys = ("client", "answered_by", "answer", "probabilities")
        assert [alone[k] for k in keys] == [through[k] for k in keys]
        assert not calls
        line = f"{own[alone['client']]}/v1/answer"
        assert httpx.post(line, json={"query": QUERY}).json()["probabilities"] == through["probabilities"]
        assert (tmp_path / alone["client"] / "audit.sqlite").exists()
        whole.sites[alone["client"]].leave()
        assert httpx.post(line, json={"query": QUERY}).status_code == 503
    finally:
        stop.set()
        for t in threads:
            t.join()


def test_what_the_file_says_is_kept(tmp_path: Path) -> None:
    assert read_gateway(tmp_path, HERE | {"tokens": "t.json"}).tokens == tmp_path / "t.json"
    token = make_token(tmp_path / "t.json", "nurse")
    assert token
    (tmp_path / "gateway.yaml").write_text("rate: 5\ncertificate: c.pem\nkey: k.pem\n")
    found = read_gateway(tmp_path, HERE)
    assert (found.rate, found.certificate, found.audit) == (5.0, tmp_path / "c.pem", tmp_path / "audit.sqlite")


@pytest.mark.parametrize(
    ("text", "words"),
    [
        ("ratte: 5\n", "ratte: no such setting; did you mean rate"),
        ("audit: x\n", "audit: no such setting"),
        ("rate: -1\n", "rate: input should be greater than 0"),
        ("- rate\n", "is no list of settings"),
        ("rate: [\n", "cannot be read"),
        ("addresses: {north: gateway.north.org}\n", "addresses.north: 'gateway.north.org' is no URL"),
    ],
)
def test_a_wrong_file_names_the_key(tmp_path: Path, text: str, words: str) -> None:
    (tmp_path / "gateway.yaml").write_text(text)
    with pytest.raises(InputError, match=words) as e:
        read_gateway(tmp_path, HERE)
    assert str(tmp_path / "gateway.yaml") in str(e.value)


def test_a_file_that_is_wrong_is_told_and_tried_on(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(kept_gateway, "AGAIN", 0.02)
    whole, stop, port, told = Whole(tmp_path), threading.Event(), free_port(), list[str]()
    site = whole.sites["east"]
    settings(site.folder, gateway=f"127.0.0.1:{port}")
    file = site.folder / "gateway.yaml"
    file.write_text("ratte: 5\n")
    at = SiteFolder(site.folder)
    thread = threading.Thread(target=serve_own, args=(at, site, stop, whole.said.append, told.append))
    thread.start()
    try:
        while not told:
            time.sleep(0.01)
        assert "there is no gateway" in told[0]
        assert "ratte: no such setting" in told[0]
        file.write_text("rate: 5\n")
        opened(f"http://127.0.0.1:{port}", "/healthz")
    finally:
        stop.set()
        thread.join()


def test_where_a_gateway_is_is_kept_and_checked(tmp_path: Path) -> None:
    tokens = tmp_path / "t.json"
    assert asked_at(tmp_path, {}, "127.0.0.1:8790", None) == HERE
    assert asked_at(tmp_path, HERE, None, tokens) == HERE | {"tokens": str(tokens)}
    assert asked_at(tmp_path, HERE, "off", None) == {"gateway": None, "tokens": None}
    with pytest.raises(InputError, match="anybody who reaches it could ask"):
        asked_at(tmp_path, {}, "0.0.0.0:8790", None)
    with pytest.raises(InputError, match="of which gateway"):
        asked_at(tmp_path, {}, None, tokens)
    with pytest.raises(InputError, match="--gateway"):
        asked_at(tmp_path, {}, "nowhere", None)
    (tmp_path / "gateway.yaml").write_text("tokens: t.json\n")
    everywhere = asked_at(tmp_path, {}, "0.0.0.0:8790", None)
    assert everywhere["gateway"] == "0.0.0.0:8790"
    (tmp_path / "gateway.yaml").write_text("rate: 5\n")  # taken out again: it does not open to everybody
    with pytest.raises(InputError, match="anybody who reaches it could ask"):
        read_gateway(tmp_path, everywhere)
