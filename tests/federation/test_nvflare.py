"""Real processes with real certificates: who is let in, who may call whom, and what a death on either side does."""

import base64
import contextlib
import datetime
import json
import os
import shutil
import signal
import stat
import statistics
import threading
import time
from collections.abc import Iterator
from functools import partial
from pathlib import Path
from typing import Any

import pytest

pytest.importorskip("nvflare")

from cryptography import x509
from cryptography.hazmat.primitives import hashes, serialization
from cryptography.hazmat.primitives.asymmetric import rsa

from fedroute.federation import onboarding, supervise
from tests.federation.federations import Real, wait_for

ROGUE, OPEN = "tests.federation.rogue.Rogue", "tests.federation.rogue.OpenSite"


@pytest.fixture(scope="module")
def real(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Real]:
    """A hub, two honest sites and one that does what it likes."""
    real = Real(tmp_path_factory.mktemp("guarded"))
    try:
        real.make_hub()
        real.start("hub")
        for name in ("alpha", "beta", "mallory"):
            real.make_site(name)
            if name == "mallory":
                real.equip_site(name, ROGUE)
            real.start(name)
        real.here("alpha", "beta", "mallory")
        yield real
    finally:
        real.stop()


@pytest.fixture(scope="module")
def unguarded(real: Real, tmp_path_factory: pytest.TempPathFactory) -> Iterator[Real]:
    """The same certificates without the guards: what the tests below try succeeds here, so they can fail."""
    other = real.copied(tmp_path_factory.mktemp("open"), ("hub", "alpha", "mallory"))
    try:
        other.equip_hub("tests.federation.rogue.OpenHub")
        other.equip_site("alpha", OPEN)
        other.equip_site("mallory", ROGUE)
        other.start("hub", "alpha", "mallory")
        other.here("alpha", "mallory")
        yield other
    finally:
        other.stop()


# calls


def test_a_call_and_its_answer(real: Real) -> None:
    sent: dict[str, Any] = {
        "text": "grüß",
        "n": 2**53,
        "x": 0.1,
        "yes": True,
        "nothing": None,
        "data": bytes(range(256)),
    }
    for method in ("ping", "put"):  # one message, and a stream
        reply = real.call("alpha", method, **sent)["reply"]
        assert base64.b64decode(reply.pop("data")["bytes"]) == sent["data"]
        assert reply == {k: v for k, v in sent.items() if k != "data"}


def test_the_sites_words_come_back(real: Real) -> None:
    assert real.call("alpha", "fail") | {"s": 0} == {
        "error": "Refused",
        "words": "the words of the site",
        "s": 0,
    }


def test_an_error_of_the_site_tells_no_more_than_its_kind(real: Real) -> None:
    got = real.call("alpha", "break")
    assert got["error"] == "Refused"
    assert "ZeroDivisionError" in got["words"]
    assert "secret" not in got["words"]
    assert "secret of the site" in real.log("alpha")


@pytest.mark.parametrize("method", ["sleep", "query"])
def test_who_is_late_is_left(real: Real, method: str) -> None:
    got = real.call("alpha", method, timeout=0.5, seconds=10)
    assert got["error"] == "Late"
    assert 0.5 <= got["s"] < 9


def test_who_is_not_there_is_away_at_once(real: Real) -> None:
    got = real.call("nobody", "ping")
    assert got["error"] == "Away"
    assert got["s"] < 60  # of the 120 that it might have taken


def test_large_answers_pass_and_too_large_ones_are_refused(real: Real) -> None:
    reply = real.call("alpha", "large", bytes=15 << 20)["reply"]
    assert len(base64.b64decode(reply["data"]["bytes"])) == 15 << 20
    sent: dict[str, Any] = {"data": bytes(6 << 20)}  # more than a frame may hold at a site
    assert len(base64.b64decode(real.call("alpha", "query", **sent)["reply"]["data"]["bytes"])) == 6 << 20
    got = real.call("alpha", "large", bytes=17 << 20)
    assert got["error"] == "Refused"
    assert "at most 16,777,216" in got["words"]


def test_queries_pass_while_the_site_works_and_sends(real: Real, capsys: pytest.CaptureFixture[str]) -> None:
    idle = [real.call("alpha", "query", a=1)["s"] for _ in range(100)]
    busy = threading.Thread(target=lambda: [real.call("alpha", "large", bytes=4 << 20) for _ in range(10)])

    def sleep() -> None:  # it outlasts the test, and perhaps the hub
        with contextlib.suppress(OSError, ValueError):
            real.call("alpha", "sleep", timeout=250, seconds=200)

    long = threading.Thread(target=sleep, daemon=True)
    long.start()
    busy.start()
    while busy.is_alive():
        got = real.call("alpha", "query", a=1)
        assert got["reply"] == {"a": 1}
    with capsys.disabled():
        print(f"\nquery, from the hub's process: median {1e3 * statistics.median(idle):.2f} ms")
    assert long.is_alive()  # nothing waited for what takes long


def test_a_site_computes_with_one_thread(real: Real) -> None:
    assert real.call("alpha", "who")["reply"]["threads"] == "1"


# who may call whom


def test_a_site_cannot_reach_another(real: Real, unguarded: Real) -> None:
    """NVFLARE's server forwards between sites, and its client runs shell commands for whoever asks."""
    attack = {"target": "alpha", "channel": "admin", "topic": "x", "shell": "pwd"}
    assert unguarded.rogue("mallory", timeout=60, **attack)["said"].strip() == str(unguarded.site("alpha").kit)
    assert real.rogue("mallory", **attack)["code"] == "timeout"
    wait_for(lambda: "a message of 'mallory' was not taken" in real.log("hub"))  # one line a minute


def test_a_site_refuses_whom_the_hub_lets_through(real: Real, unguarded: Real) -> None:
    """The site's own guard stands where the hub's has fallen."""
    folder = unguarded.site("alpha")
    supervise.stop(folder.root)
    unguarded.equip_site("alpha")
    supervise.start(folder.root)
    unguarded.here("alpha", "mallory")
    for channel, topic in (("admin", "x"), ("fedroute_here", "here"), ("_net_manager", "stop")):
        got = unguarded.rogue("mallory", target="alpha", channel=channel, topic=topic, shell="pwd")
        assert got["code"] == "timeout"
    wait_for(lambda: "nobody but the hub may call a site" in unguarded.log("alpha"))
    supervise.stop(folder.root)  # open again, as the other tests want it
    unguarded.equip_site("alpha", OPEN)
    supervise.start(folder.root)
    unguarded.here("alpha", "mallory")


def test_nobody_speaks_as_the_hub(real: Real) -> None:
    """The origin is bound to the certificate: NVFLARE drops what claims another."""
    got = real.rogue("mallory", target="alpha", channel="fedroute_here", topic="here", claim="server")
    assert got["code"] == "timeout"
    got = real.rogue("mallory", target="server", channel="fedroute_here", topic="here", claim="beta")
    assert got["code"] == "timeout"
    wait_for(lambda: "that is not who is at the other end" in real.log("hub"))


def test_quick_calls_know_no_way_from_site_to_site_nor_to_the_hub(real: Real) -> None:
    """Not even a site without a guard has an endpoint to send them to but the hub, and the hub answers none."""
    for headers in ({"method": "query"}, {"number": "x", "method": "hello"}, {"number": "x"}, {}):
        got = real.rogue("mallory", quick=headers, others=["server", "alpha", "beta"])
        assert got == {"sent": True, "known": ["server"], "answers": 0}
    assert real.call("alpha", "ping")["reply"] == {}


def test_a_frame_larger_than_any_message_ends_the_connection_that_brings_it(real: Real) -> None:
    """It is not taken into memory first."""
    before = memory(real, "hub")
    real.rogue("mallory", quick={"number": "x"}, others=[], bytes=120 << 20)
    wait_for(lambda: "mallory is away" in real.log("hub"))
    real.here("mallory")
    assert memory(real, "hub") - before < 60 << 20
    assert real.call("alpha", "ping")["reply"] == {}


def memory(real: Real, name: str) -> int:
    """Bytes, the most that the process ever had."""
    status = Path(f"/proc/{real.process(name)}/status")
    if not status.exists():
        pytest.skip("/proc says how much memory a process has, and there is none here")
    return 1024 * int(next(line for line in status.read_text().splitlines() if line.startswith("VmHWM")).split()[1])


def test_a_site_can_stop_neither_hub_nor_run_anything_on_it(real: Real, unguarded: Real) -> None:
    before = real.process("hub")
    for channel, topic in (
        ("_net_manager", "stop"),
        ("hci_channel", "x"),
        ("aux_communication", "x"),
        ("task", "get_task"),
    ):
        assert real.rogue("mallory", target="server", channel=channel, topic=topic, body="x")["code"] == "timeout"
    assert real.process("hub") == before
    assert real.call("alpha", "ping")["reply"] == {}
    # the same diagnostics answer where no guard stands
    cells = unguarded.rogue("mallory", target="server", channel="_net_manager", topic="cells", timeout=60)
    assert cells["code"] == "ok"


def test_one_port_at_the_hub_and_none_at_a_site(real: Real) -> None:
    psutil = pytest.importorskip("psutil")  # comes with NVFLARE

    def listens(name: str) -> list[int]:
        found = psutil.Process(real.process(name)).net_connections("inet")
        return sorted(c.laddr.port for c in found if c.status == psutil.CONN_LISTEN)

    assert set(listens("hub")) == {real.port}
    assert listens("alpha") == []


def test_sites_deny_jobs_and_commands_by_policy_too(real: Real) -> None:
    local = real.site("alpha").kit / "local"
    rights = json.loads((local / "authorization.json").read_text())["permissions"]
    assert {right for role in rights.values() for right in role.values()} == {"none"}
    resources = json.loads((local / "resources.json").read_text())
    assert resources["allow_log_streaming"] is False
    assert [c["id"] for c in resources["components"]] == ["fedroute"]
    assert "/tmp/nvflare" not in (real.hub.kit / "local" / "resources.json").read_text()


# who is let in


def impostors(real: Real, root: Path) -> Real:
    """A site with a certificate of another CA, one that nobody ever let in, and one that claims another's name."""
    other = real.copied(root, ("beta", "mallory"))
    shutil.copytree(other.site("beta").root, other.site("stranger").root)
    for name in ("beta", "stranger", "mallory"):
        folder = other.site(name)
        settings = json.loads(folder.settings_file.read_text()) | {"port": real.port}
        for file in (folder.kit / "startup").glob("fed_*.json"):
            file.write_text(file.read_text().replace(str(other.port), str(real.port)))
        if name != "mallory":
            certificate, key = foreign(name)
            settings["name"] = name
            file = folder.kit / "startup" / "fed_client.json"
            file.write_text(file.read_text().replace('"beta"', f'"{name}"'))
            (folder.kit / "startup" / "client.crt").write_bytes(certificate)
            (folder.kit / "startup" / "client.key").write_bytes(key)
        else:
            settings["name"] = "alpha"
            file = folder.kit / "startup" / "fed_client.json"
            file.write_text(file.read_text().replace('"mallory"', '"alpha"'))
        folder.settings_file.write_text(json.dumps(settings))
        other.equip_site(name, admission=2.0)
    return other


def foreign(name: str) -> tuple[bytes, bytes]:
    """A certificate of the same name that signs itself, and its key."""
    key = rsa.generate_private_key(65537, 2048)
    subject = x509.Name([x509.NameAttribute(x509.NameOID.COMMON_NAME, name)])
    now, day = datetime.datetime.now(datetime.UTC), datetime.timedelta(days=1)
    made = (
        x509.CertificateBuilder().subject_name(subject).issuer_name(subject).public_key(key.public_key())
        .serial_number(7).not_valid_before(now - day).not_valid_after(now + day).sign(key, hashes.SHA256())
    )  # fmt: skip
    pem = serialization.Encoding.PEM
    plain = serialization.PrivateFormat.TraditionalOpenSSL, serialization.NoEncryption()
    return made.public_bytes(pem), key.private_bytes(pem, *plain)


def test_impostors_are_never_let_in_and_are_told_why(real: Real, tmp_path: Path) -> None:
    other = impostors(real, tmp_path)
    changes = len(ask_changes(real))
    try:
        other.start("beta", "stranger", "mallory")
        for name in ("beta", "stranger"):
            wait_for(partial(not_taken, other, name))
            assert "admitted by the hub\n" not in other.log(name).replace("not admitted by the hub", "")
        wait_for(lambda: "the certificate here is that of 'mallory'" in other.log("mallory"))
        claimed = "authenticated as 'mallory' but claimed endpoint 'alpha'"
        wait_for(lambda: claimed in (real.hub.kit / "nvflare.log").read_text())
        assert len(ask_changes(real)) == changes  # alpha and beta themselves were not disturbed
        assert real.nodes() == ["alpha", "beta", "mallory"]
    finally:
        other.stop()


def not_taken(real: Real, name: str) -> bool:
    return "does not take this site's certificate" in real.log(name)


def ask_changes(real: Real) -> list[Any]:
    from tests.federation.remote_control import ask

    found: list[Any] = ask(real.hub.root / "control", do="changes")["changes"]
    return found


def test_private_keys_are_for_their_owner_alone(real: Real) -> None:
    keys = [*real.hub.root.rglob("*.key"), *real.site("alpha").root.rglob("*.key")]
    assert len(keys) == 5  # CA, hub (asked and kit), site (asked and kit)
    assert {stat.S_IMODE(k.stat().st_mode) for k in keys} == {0o600}
    sent = (real.site("alpha").root / "alpha.request.zip").read_bytes() + (real.root / "alpha.zip").read_bytes()
    assert b"PRIVATE KEY" not in sent
    assert not [
        n for n in onboarding._inside(real.root / "alpha.zip", "certificate.signed.zip").split(b"PK") if b".key" in n
    ]


# deaths


@pytest.mark.parametrize("method", ["sleep", "query"])
def test_a_killed_site_is_missed_at_once_and_comes_back(real: Real, method: str) -> None:
    got: dict[str, Any] = {}
    waiting = threading.Thread(target=lambda: got.update(real.call("beta", method, timeout=60, seconds=50)))
    waiting.start()
    time.sleep(0.5)
    first = real.process("beta")
    os.kill(first, signal.SIGKILL)
    waiting.join()
    assert got["error"] == "Away"
    assert got["s"] < 40  # of the 50 that it would have slept
    real.here("alpha")
    real.here("beta")
    assert pid_of(real, "beta") == real.process("beta") != first


def pid_of(real: Real, name: str) -> int:
    """Of the site that answers; the connection that is there may be one that is about to break."""
    return int(wait_for(lambda: real.call(name, "who").get("reply"))["pid"])


def test_a_killed_hub_comes_back_and_the_sites_with_it(real: Real) -> None:
    sites = {n: real.process(n) for n in ("alpha", "beta")}
    first = real.process("hub")
    os.kill(first, signal.SIGKILL)
    wait_for(lambda: supervise.Running(real.hub.root).process not in (None, first))
    real.here("alpha", "beta", "mallory")
    assert {n: pid_of(real, n) for n in sites} == sites  # the sites were not started anew


def test_stop_leaves_nothing_behind(real: Real) -> None:
    """Also where the supervisor itself was killed."""
    running = supervise.Running(real.site("beta").root)
    assert running.supervisor
    assert running.process
    os.kill(running.supervisor, signal.SIGKILL)
    assert supervise.stop(real.site("beta").root)
    process = running.process
    wait_for(lambda: not supervise.exists(process))  # it lets go of its files before it is gone
    wait_for(lambda: "beta" not in real.nodes())
    assert not supervise.Running(real.site("beta").root).alive
    real.start("beta")  # the other tests want it
    real.here("beta")
