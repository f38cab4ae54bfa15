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
from fedroute.federation.gateway_file import GatewayFile, asked_at, read_gateway
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
    end = time.monotonic() + 120
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
            threading.Thread(
                target=serve_own, args=(SiteFolder(site.folder), site, stop, whole.said.append), daemon=True
            )
        )
        threads[-1].start()
    opened(own["east"], "/healthz")
    refused = httpx.post(f"{own['east']}/v1/answer", json={"query": QUERY}, timeout=60)
    assert refused.status_code == 503  # not trained yet
    assert refused.json()["error"] == "there is no model yet"
    transport = whole.network
    hub = whole.hub(config(PRIVATE).model_copy(update={"router": RouterSpec(kind="auto")}))
    at, port = HubFolder(tmp_path / "hub"), free_port()
    settings(at.root, gateway=f"127.0.0.1:{port}")
    limits = {"rate": 1000, "timeout": 60, "answer_timeout": 60}
    (at.root / "gateway.yaml").write_text(json.dumps({"addresses": own} | limits))
    serving = (at, hub, transport, stop, whole.said.append)
    threads.append(threading.Thread(target=live_gateway.serve_live, args=serving, daemon=True))
    threads[-1].start()
    try:
        hub.run()
        for url in (f"http://127.0.0.1:{port}", *own.values()):
            opened(url)
        with Client(f"http://127.0.0.1:{port}") as asked:
            through = asked.predict(QUERY)
            edge = Edge.of(asked)
            before = (
                transport.calls.copy()
            )  # a hub whose run has just ended still greets its sites, and asks nothing else
            alone = edge.predict(QUERY)
            asked_since = {method for _, method in transport.calls - before}
        keys = ("client", "answered_by", "answer", "probabilities")
        assert [alone[k] for k in keys] == [through[k] for k in keys]
        assert asked_since <= {"hello"}
        line = f"{own[alone['client']]}/v1/answer"
        assert httpx.post(line, json={"query": QUERY}, timeout=60).json()["probabilities"] == through["probabilities"]
        assert (tmp_path / alone["client"] / "audit.sqlite").exists()
        whole.sites[alone["client"]].leave()
        assert httpx.post(line, json={"query": QUERY}, timeout=60).status_code == 503
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
        ("rate: 5\nrate: [\n", "is not YAML: .* line 3, column 1"),
        ("addresses: {north: gateway.north.org}\n", "addresses.north: 'gateway.north.org' is no URL"),
    ],
)
def test_a_wrong_file_names_the_key(tmp_path: Path, text: str, words: str) -> None:
    (tmp_path / "gateway.yaml").write_text(text)
    with pytest.raises(InputError, match=words) as e:
        read_gateway(tmp_path, HERE)
    assert str(tmp_path / "gateway.yaml") in str(e.value)


def test_a_misspelt_client_is_told_with_the_nearest_one(tmp_path: Path) -> None:
    file, hub = tmp_path / "gateway.yaml", {"kind": "hub"} | HERE
    file.write_text("addresses: {nroth: https://gateway.north.org}\n")
    assert read_gateway(tmp_path, hub).addresses  # nobody is approved yet
    (tmp_path / "approved.json").write_text(json.dumps({"north": {}, "south": {}}))
    with pytest.raises(InputError, match=r"gateway\.yaml: addresses\.nroth: no site of that name .*did you mean north"):
        read_gateway(tmp_path, hub)
    file.write_text("addresses: {north: https://gateway.north.org}\n")
    assert [*read_gateway(tmp_path, hub).addresses] == ["north"]
    with pytest.raises(InputError, match=r"addresses: a site's gateway has none to give; .* the hub's gateway\.yaml"):
        asked_at(tmp_path, {"kind": "site"} | HERE, "127.0.0.1:8790", None)
    (tmp_path / "approved.json").write_text("{")
    with pytest.raises(InputError, match=r"approved\.json: cannot be read"):
        read_gateway(tmp_path, hub)


def test_a_file_that_changes_is_taken_up_and_one_that_cannot_be_is_told(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(kept_gateway, "LOOK", 0.02)
    whole, stop, port, told = Whole(tmp_path), threading.Event(), free_port(), list[str]()
    site, url = whole.sites["east"], f"http://127.0.0.1:{port}"
    settings(site.folder, gateway=f"127.0.0.1:{port}")
    file, at = site.folder / "gateway.yaml", SiteFolder(site.folder)
    thread = threading.Thread(target=serve_own, args=(at, site, stop, whole.said.append, told.append), daemon=True)
    thread.start()

    def comes(words: str) -> None:
        end = time.monotonic() + 60
        while not told or words not in told[-1]:
            assert time.monotonic() < end, told
            time.sleep(0.01)

    def status() -> int:
        try:
            return httpx.get(f"{url}/v1/schema", timeout=60).status_code
        except httpx.TransportError:  # while it opens anew
            return 0

    try:
        opened(url, "/healthz")
        assert status() == 503  # there is no model yet
        for text, words in (
            ("ratte: 5\n", "ratte: no such setting"),
            ("certificate: c.pem\nkey: k.pem\n", "c.pem: no such file"),
            ("tokens: none.json\n", "none.json: the file of tokens cannot be read"),
            ("audit_key: none\n", "none: the key of the audit cannot be read"),
        ):
            file.write_text(text)
            comes(words)
            assert told[-1].startswith(
                f"queries to this site alone at {url}; gateway.yaml has changed, and is not taken"
            )
            assert status() == 503  # it goes on as it was
        file.unlink()
        end = time.monotonic() + 60
        while told[-1] != f"queries to this site alone at {url}":
            assert time.monotonic() < end
            time.sleep(0.01)
        assert not any("opens anew" in line for line in whole.said)  # it is again as it was taken
        file.write_text("tokens: t.json\n")
        comes("t.json: the file of tokens cannot be read")
        make_token(site.folder / "t.json", "nurse")  # another file than gateway.yaml that is mended
        end = time.monotonic() + 60
        while status() != 401 or told[-1] != f"queries to this site alone at {url}":
            assert time.monotonic() < end
            time.sleep(0.01)
    finally:
        stop.set()
        thread.join()


def test_what_is_half_written_or_put_back_is_not_taken_up(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    monkeypatch.setattr(kept_gateway, "LOOK", 0.0)
    was, half, new = ((GatewayFile(rate=r), ()) for r in (1.0, None, 2.0))
    seen = [was, half, was, half, new]

    def files(*_: object) -> kept_gateway.Files:
        return seen.pop(0)

    monkeypatch.setattr(kept_gateway, "_files", files)
    told = list[str]()
    with pytest.raises(IndexError):  # all of them looked at, and it has not returned
        kept_gateway._until_changed(tmp_path, HERE, was, threading.Event(), told.append)
    seen += [was, half, new, new]
    kept_gateway._until_changed(tmp_path, HERE, was, threading.Event(), told.append)
    assert not any(told)


def test_a_certificate_that_is_renewed_is_a_change(tmp_path: Path) -> None:
    (tmp_path / "gateway.yaml").write_text("certificate: c.pem\nkey: k.pem\n")
    for name in ("c.pem", "k.pem"):
        (tmp_path / name).write_text("old")
    before = kept_gateway._files(tmp_path, HERE)
    assert kept_gateway._files(tmp_path, HERE) == before
    (tmp_path / "new.pem").write_text("new")
    (tmp_path / "new.pem").replace(tmp_path / "c.pem")
    assert kept_gateway._files(tmp_path, HERE) != before


def test_a_file_that_is_wrong_is_told_and_tried_on(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(kept_gateway, "AGAIN", 0.02)
    whole, stop, port, told = Whole(tmp_path), threading.Event(), free_port(), list[str]()
    site = whole.sites["east"]
    settings(site.folder, gateway=f"127.0.0.1:{port}")
    file = site.folder / "gateway.yaml"
    file.write_text("ratte: 5\n")
    at = SiteFolder(site.folder)
    thread = threading.Thread(target=serve_own, args=(at, site, stop, whole.said.append, told.append), daemon=True)
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
