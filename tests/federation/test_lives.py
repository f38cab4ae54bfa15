"""Starting, and what is said of how a hub or a site stands: ports, folders that were copied, who waits for whom."""

import json
import os
import shutil
import socket
import threading
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any, cast

import pytest

pytest.importorskip("nvflare")

from fedroute.config import from_dict
from fedroute.errors import InputError, RunFailed
from fedroute.federation import kept_gateway, kit, live_gateway, lives, onboarding, supervise
from fedroute.federation.accepting import known_of, manifest_of
from fedroute.federation.asking import LEFT, named
from fedroute.federation.folders import HubFolder, SiteFolder
from fedroute.federation.hub import Hub
from fedroute.federation.inprocess import InProcess
from fedroute.federation.left_file import leave
from fedroute.federation.ports import bound_at, fault_at, held
from fedroute.federation.settling import settle
from fedroute.federation.site import Site
from fedroute.federation.site_gateway import beside, own_gateway
from fedroute.federation.standing import Standing
from fedroute.federation.state_file import write_state
from fedroute.federation.transport import Away, Refused
from fedroute.federation.twins import REPLACED, SHOWN, TWINS, WITHIN, Twins, told_to
from fedroute.quarantine import Quarantined, alike, how_often
from tests.federation.federations import CONFIG, free_port


@contextmanager
def program_at(address: str = "127.0.0.1") -> Iterator[int]:
    with socket.socket() as s:
        s.bind((address, free_port()))
        s.listen()
        yield int(s.getsockname()[1])


def hub_at(root: Path, port: int, **settings: Any) -> HubFolder:
    """A hub's folder without certificates."""
    hub = HubFolder(root / "hub")
    (hub.kit / "startup").mkdir(parents=True)
    kit.equip_hub(hub.kit, folder=str(hub.root))
    service = {"target": f"localhost:{port}", "scheme": "http"}
    (hub.kit / "startup" / "fed_server.json").write_text(
        json.dumps({"servers": [{"service": service, "admin_port": port}]})
    )
    hub.keep(**{"host": "localhost", "port": port, "org": "hub", "gateway": None, "tokens": None} | settings)
    return hub


def site_at(root: Path) -> SiteFolder:
    site = SiteFolder(root / "north")
    (site.kit / "startup").mkdir(parents=True)
    kit.equip_site(site.kit, folder=str(site.root))
    site.keep(name="north", org="org", host="localhost", port=7, hub="localhost", data=str(root / "north.yaml"))
    return site


@contextmanager
def running(folder: Path) -> Iterator[None]:
    """As where a supervisor runs: what tells it is the lock."""
    lock = os.open(folder / ".lock", os.O_RDWR | os.O_CREAT, 0o600)
    try:
        assert supervise._take(lock)
        (folder / "process.json").write_text(
            json.dumps({"supervisor": os.getpid(), "process": os.getpid(), "restarts": 0})
        )
        yield
    finally:
        os.close(lock)


# ports


def test_a_port_is_tried_where_the_hub_would_listen() -> None:
    assert [bound_at(h) for h in ("localhost", "127.0.0.2", "::1", "hub.example.org", "10.0.0.1")] == [
        "127.0.0.1", "127.0.0.2", "127.0.0.1", "", "",
    ]  # fmt: skip
    with program_at() as port:
        assert held(port)  # by this process
        assert "is taken" in fault_at("127.0.0.1", port)
        assert "is taken" in fault_at("", port)
    assert fault_at("127.0.0.1", port) == ""
    assert not held(port)


def test_a_hub_whose_port_is_taken_is_not_started(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(supervise, "start", lambda folder: pytest.fail("it was started"))
    monkeypatch.setattr(supervise, "supervise", lambda folder: pytest.fail("it was started"))
    with program_at() as port:
        hub = hub_at(tmp_path, port)
        for foreground in (False, True):
            with pytest.raises(
                InputError, match=rf"port {port} is taken \(by another program\): stop that, or .*settings"
            ):
                lives.begin(hub, foreground, 1.0, lives.hub_is_up)


def test_a_start_that_is_not_up_in_time_fails_with_the_last_words(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    site = site_at(tmp_path)
    site.log.write_text("old words\n")

    def start(folder: Path) -> None:
        with site.log.open("a") as f:
            f.write("new words\n")
        (folder / "process.log").write_text("Traceback\n")
        write_state(folder, admitted=False, hub=False, words="the hub does not take this site's certificate")

    monkeypatch.setattr(supervise, "start", start)
    with pytest.raises(RunFailed, match=r"not up after 0\.3 s: the hub does not take") as e:
        lives.begin(site, False, 0.3, lives.site_is_in)
    assert "new words\n  Traceback" in str(e.value)
    assert "old words" not in str(e.value)
    assert "not yet: the hub does not take" in capsys.readouterr().err  # as soon as it is known
    lives.begin(site, False, 0.0, lives.site_is_in)  # who does not wait is not told
    assert capsys.readouterr().out == "started\n"


@pytest.mark.parametrize("foreground", [False, True])
def test_starting_what_runs_already_changes_nothing(foreground: bool, tmp_path: Path) -> None:
    site = site_at(tmp_path)
    write_state(site.root, admitted=True, hub=True)
    before = (site.root / "state.json").read_bytes()
    with running(site.root):
        with pytest.raises(InputError, match="it runs already"):
            lives.begin(site, foreground, 1.0, lives.site_is_in)
        assert "connected with the hub" in lives.site_words(lives.site_status(site) | {"joined": True})
        site.keep(**site.settings() | {"gateway": "127.0.0.1:8790"})
        told = lives.site_words(lives.site_status(site) | {"joined": True})
        assert "its own gateway at 127.0.0.1:8790 has not said yet how it stands" in told
    assert (site.root / "state.json").read_bytes() == before


def test_a_gateway_whose_port_is_taken_is_told_and_tried_on(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    pytest.importorskip("uvicorn")
    monkeypatch.setattr(kept_gateway, "SOON", 0.02)
    monkeypatch.setattr(kept_gateway, "AGAIN", 0.02)
    stop, told, said = threading.Event(), list[str](), list[str]()
    with program_at() as port:
        at = hub_at(tmp_path, free_port(), gateway=f"127.0.0.1:{port}")
        hub = Hub(from_dict(CONFIG | {"router": "auto"}), tmp_path / "run", InProcess({}))
        serving = threading.Thread(
            target=live_gateway.serve_live, args=(at, hub, InProcess({}), stop, said.append, told.append), daemon=True
        )
        serving.start()
        while len(told) < 3:
            stop.wait(0.01)
        assert "there is no gateway" in told[-1]
        assert f"port {port} is taken" in told[-1]
        assert len(said) == 1  # once in the log
        write_state(at.root, up=True, gateway=told[-1], phase="waiting", round=0, rounds=3)
        assert f"port {port} is taken" in lives.hub_is_up(at)
        with running(at.root):
            assert f"port {port} is taken" in lives.hub_words(lives.hub_status(at))
    while "there is no gateway" in told[-1]:
        stop.wait(0.01)
    stop.set()
    serving.join(10)
    assert told[-1] == f"routed queries at 127.0.0.1:{port} from when the first training has ended"


@pytest.mark.parametrize("router", ["auto", None])
def test_a_gateway_that_has_no_guide_yet_says_from_when(
    router: str | None, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    pytest.importorskip("uvicorn")
    monkeypatch.setattr(kept_gateway, "LOOK", 0.02)
    stop, told, said, guides = threading.Event(), list[str](), list[str](), [None]
    at = hub_at(tmp_path, free_port(), gateway=f"127.0.0.1:{free_port()}")
    hub = Hub(from_dict(CONFIG | {"router": router}), tmp_path / "run", InProcess({}))
    monkeypatch.setattr(hub, "clients", lambda: ("north",))
    monkeypatch.setattr(hub, "guide", lambda: guides[0])
    serving = threading.Thread(
        target=live_gateway.serve_live, args=(at, hub, InProcess({}), stop, said.append, told.append), daemon=True
    )
    serving.start()
    try:
        while len(told) < 3:
            stop.wait(0.01)
        once = live_gateway.FROM if router else live_gateway.NEVER
        where = f"routed queries at http://{at.settings()['gateway']}"
        assert told[-1] == f"{where} {once}"
        assert said[-1].endswith(once)
        guides[0] = cast(Any, object())
        while told[-1] != where:
            stop.wait(0.01)
    finally:
        stop.set()
        serving.join(10)


def test_the_port_that_sites_dial_is_no_gateway(tmp_path: Path) -> None:
    with pytest.raises(InputError, match=r"--gateway 127.0.0.1:9712: port 9712 is the one that the sites dial"):
        onboarding.init_hub(from_dict(CONFIG), tmp_path / "hub", "localhost", 9712, gateway="127.0.0.1:9712")
    assert not (tmp_path / "hub").exists()
    port = free_port()
    at = hub_at(tmp_path / "edited", port, gateway=f"0.0.0.0:{port}")
    with pytest.raises(InputError, match=rf"settings.json: gateway 0.0.0.0:{port}: port {port} is the one"):
        lives.startable(at)
    at.keep(**{k: v for k, v in at.settings().items() if k != "kind"} | {"gateway": f"127.0.0.1:{free_port()}"})
    lives.startable(at)


def test_one_that_has_left_is_told_once_and_can_be_stopped(tmp_path: Path) -> None:
    left = {"client": "west", "state": LEFT, "words": f"is not let in: west {LEFT}"}
    late = {"client": "east", "state": "here", "words": "is not let in: no column 'age'"}
    found = {"running": True, "process": 1, "restarts": 0, "up": True, "sites": [left, late]}
    assert lives.hub_words(found).splitlines()[1:] == [
        f"  west: {LEFT}",
        "  east: here; is not let in: no column 'age'",
    ]
    site = site_at(tmp_path)
    for heard, words in ((False, "it runs only to say so at the hub"), (True, "`fedroute site stop` ends it")):
        leave(site.root, heard=heard)
        with running(site.root):
            assert lives.site_words(lives.site_status(site) | {"joined": True}).endswith(words)
        assert words not in lives.site_words(lives.site_status(site) | {"joined": True})


def test_a_site_s_own_gateway_whose_port_is_taken_is_told_by_start_and_status(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    pytest.importorskip("uvicorn")
    monkeypatch.setattr(kept_gateway, "AGAIN", 0.02)

    class NoModel:
        def own(self) -> None:
            raise Refused("nothing is agreed")

    site, said, pause = site_at(tmp_path), list[str](), threading.Event()
    write_state(site.root, admitted=True, hub=True, fault="")
    with running(site.root):
        assert lives.site_is_in(site) == "north is admitted by the hub localhost:7"
        with program_at() as port:
            site.keep(**site.settings() | {"gateway": f"127.0.0.1:{port}"})
            assert lives.site_is_in(site) == ""  # it has not said yet
            write_state(site.root, admitted=True, hub=True, fault="x.csv cannot be read")
            assert lives.site_is_in(site)  # it may have no gateway then, and is not waited for
            write_state(site.root, admitted=True, hub=True, fault="")
            stop = beside(site, cast(Site, NoModel()), said.append)
            assert stop
            while not lives.site_is_in(site):
                pause.wait(0.01)
            for words in (lives.site_is_in(site), lives.site_words(lives.site_status(site) | {"joined": True})):
                assert f"there is no gateway at 127.0.0.1:{port}: port {port} is taken (by another program)" in words
                assert "put another `gateway` into" in words
            assert own_gateway(site.root, os.getpid() + 1) == ""  # what a process before it said
        while "there is no gateway" in lives.site_is_in(site):
            pause.wait(0.01)
        words = f"queries to this site alone at http://127.0.0.1:{port}"
        assert lives.site_is_in(site).endswith(words)
        assert lives.site_status(site)["gateway_says"] == words
    stop.set()
    for thread in [t for t in threading.enumerate() if t.name == "fedroute-gateway"]:
        thread.join(30)


# folders


def test_a_copied_folder_is_one_of_its_own(tmp_path: Path) -> None:
    hub = hub_at(tmp_path, 8123)
    hub.keep(
        **{k: v for k, v in hub.settings().items() if k != "kind"}
        | {"tokens": str(hub.root / "tokens.json"), "port": 9},
    )
    other = HubFolder(tmp_path / "copy")
    shutil.copytree(hub.root, other.root)
    before = {p: p.read_bytes() for p in hub.root.rglob("*") if p.is_file()}
    settle(other)
    assert {p: p.read_bytes() for p in hub.root.rglob("*") if p.is_file()} == before
    assert str(hub.root) + "/" not in (other.kit / "local" / "resources.json").read_text()
    assert f'"folder": "{other.root}"' in (other.kit / "local" / "resources.json").read_text()
    assert other.settings()["tokens"] == str(other.root / "tokens.json")
    served = json.loads((other.kit / "startup" / "fed_server.json").read_text())["servers"][0]
    assert (served["service"]["target"], served["admin_port"]) == ("localhost:9", 9)  # as settings.json says


def test_two_processes_of_one_name_are_told_from_one_that_restarts(monkeypatch: pytest.MonkeyPatch) -> None:
    now = [1000.0]
    monkeypatch.setattr("time.monotonic", lambda: now[0])
    twins = Twins()
    assert twins.notes() == {}
    assert not twins.came("north", "a", "b")  # restarted, or copied
    assert twins.notes() == {"north": REPLACED}
    assert not twins.came("north", "b", "c")
    now[0] += SHOWN
    assert twins.notes() == {}
    assert twins.came("north", "c", "b")  # b is back, so it was never gone
    assert not twins.came("north", "b", "c")  # said once
    assert twins.notes() == {"north": TWINS}
    now[0] += WITHIN
    assert twins.notes() == {}


def test_start_says_what_the_hub_says_of_a_twin(tmp_path: Path) -> None:
    """It waits for the hub's first word, and no longer than some seconds."""
    site = site_at(tmp_path)
    write_state(site.root, admitted=True, hub=True, hub_says={})
    assert lives.site_is_in(site) == ""
    state = json.loads((site.root / "state.json").read_text())
    (site.root / "state.json").write_text(json.dumps(state | {"at": state["at"] - lives.UNSAID}))
    assert lives.site_is_in(site) == "north is admitted by the hub localhost:7"
    for words, said in (("", []), ("no column x", []), (REPLACED, [REPLACED]), (TWINS, [TWINS])):
        write_state(site.root, admitted=True, hub=True, hub_says={"phase": "", "words": words})
        assert lives.site_is_in(site).splitlines()[1:] == said


# words


def test_a_name_is_said_once() -> None:
    assert named("porto", Refused("no column x")) == "porto: no column x"
    assert named("porto", Refused("porto: no column x")) == "porto: no column x"
    assert named("porto", Away("porto is not connected")) == "porto is not connected"
    found = {"running": True, "process": 1, "restarts": 0, "up": True, "phase": "training", "round": 6, "rounds": 12}
    sites = [
        {"client": "a", "here": True, "state": "here", "words": "left out of the last 5 rounds: it is late"},
        {"client": "b", "here": False, "state": "away", "words": ""},
    ]
    lines = lives.hub_words(found | {"sites": sites}).splitlines()
    assert lines[2:] == ["  a: here; left out of the last 5 rounds: it is late", "  b: away"]


def test_who_is_left_out_again_and_again_is_said() -> None:
    out = [Quarantined(r, "a", f"no answer for {10 * r} s") for r in (1, 3, 4)] + [Quarantined(4, "b", "NaN")]
    standing = Standing()
    standing.after(out, 4)
    assert standing.words("a") == "left out of the last 2 rounds: no answer for 40 s"
    assert standing.words("b") == "left out of the last round: NaN"
    assert standing.words("c") == ""
    standing.after(out, 5)
    assert standing.words("a") == ""
    assert how_often(out, 12) == {
        "a": "left out of 3 of 12 rounds, at last: no answer for 40 s", "b": "left out of 1 of 12 rounds, at last: NaN",
    }  # fmt: skip
    assert alike(out[0].reason, out[1].reason)
    assert not alike(out[0].reason, "NaN")


def test_a_site_hears_that_the_run_has_failed_and_what_was_said_of_itself() -> None:
    state = {"phase": "failed", "words": "the run cannot go on: north: no column x\nsouth: no column y\nagain"}
    assert told_to("north", state) == {"phase": "failed", "words": "north: no column x"}
    assert told_to("south", state) == {"phase": "failed", "words": "south: no column y"}
    assert told_to("west", state) == {"phase": "failed", "words": ""}
    assert told_to("west", {}) == {"phase": "", "words": ""}


def test_an_owner_is_told_why_the_hub_has_not_asked(tmp_path: Path) -> None:
    site = site_at(tmp_path)
    assert known_of(site).words.startswith("start the site")
    with running(site.root):
        write_state(site.root, admitted=True, hub=True, hub_says={"phase": "waiting", "words": ""})
        assert known_of(site) == ("it waits for the other sites", False)
        said: list[str] = []
        with pytest.raises(InputError, match="waits for the other sites"):
            manifest_of(site, 0.1, said.append)
        write_state(site.root, admitted=True, hub=True, hub_says={"phase": "failed", "words": "north: no column x"})
        with pytest.raises(InputError, match=r"run cannot go on: north: no column x; .*`fedroute hub status`"):
            manifest_of(site, 600.0, said.append)  # at once
        assert "run cannot go on" in lives.site_words(lives.site_status(site) | {"joined": True})
