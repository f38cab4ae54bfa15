"""From nothing to a federation by the commands: who signs what, and what is refused in words."""

import json
import re
import shutil
import stat
import subprocess
import sys
import time
import zipfile
from pathlib import Path

import pytest
import yaml

pytest.importorskip("nvflare")

from fedroute.config import load
from fedroute.errors import InputError
from fedroute.federation import kit, onboarding
from fedroute.federation.accepting import accept, manifest_of
from fedroute.federation.examine import examine
from fedroute.federation.folders import HubFolder, SiteFolder
from fedroute.federation.hub_config import checked_start
from fedroute.federation.leaving import leave_for_good, to_be_in
from fedroute.federation.left_file import leave, left
from fedroute.federation.lives import site_status, site_words
from fedroute.federation.reaching import reach, why_not
from fedroute.federation.site_process import open_site
from fedroute.federation.transport import Refused
from tests.federation.federations import free_port

CONFIG = """
federation: {source: csv, path: visits.csv, client: hospital, label: disease}
model: {name: mlp}
algorithm: fedavg
"""


class Made:
    """A hub, and a site that has joined it."""

    def __init__(self, root: Path):
        self.root = root
        self.port = free_port()
        config = root / "config.yaml"
        config.write_text(CONFIG, encoding="utf-8")
        self.hub = onboarding.init_hub(load(config), root / "hub", "localhost", self.port)
        self.asked, self.key = onboarding.request("north", "st_mary", root / "north")
        self.approved = onboarding.approve(self.asked, self.hub, root / "north.zip")
        self.data = root / "north.yaml"
        self.data.write_text("path: visits.csv\n", encoding="utf-8")
        self.site = SiteFolder.at(root / "north")
        self.fingerprint = onboarding.join(self.approved.signed, self.site, self.data, self.approved.ca)


@pytest.fixture(scope="module")
def made(tmp_path_factory: pytest.TempPathFactory) -> Made:
    return Made(tmp_path_factory.mktemp("made"))


def command(*words: str) -> subprocess.CompletedProcess[str]:
    return subprocess.run([sys.executable, "-c", "from fedroute.cli import main; main()", *words],
                          capture_output=True, text=True, check=False)  # fmt: skip


def test_both_sides_see_the_same_fingerprints(made: Made) -> None:
    assert made.key == made.approved.key
    assert made.fingerprint == made.approved.ca == made.hub.settings()["fingerprint"]
    assert made.key != made.fingerprint


def test_the_key_stays_at_the_site(made: Made) -> None:
    key = (made.site.kit / "startup" / "client.key").read_bytes()
    assert b"PRIVATE KEY" in key
    for sent in (made.asked, made.approved.signed):
        with zipfile.ZipFile(sent) as z:
            for name in z.namelist():
                assert key not in z.read(name)
                assert b"PRIVATE" not in z.read(name)
    assert not [p for p in made.hub.root.rglob("*") if p.is_file() and key in p.read_bytes()]
    assert stat.S_IMODE(made.site.root.stat().st_mode) == stat.S_IMODE(made.hub.root.stat().st_mode) == 0o700


def test_a_site_gets_the_config_without_the_hubs_paths(made: Made) -> None:
    config = yaml.safe_load(made.site.config.read_text())
    assert config["federation"]["label"] == "disease"
    assert "path" not in config["federation"]
    assert config["model"]["name"] == "mlp"
    given = json.loads(onboarding.approved_sites(made.hub.root)["north"]["given"])
    assert given == config["federation"]  # the hub knows by what its sites answer
    hub = HubFolder(shutil.copytree(made.hub.root, made.root / "relabelled"))
    hub.config.write_text(hub.config.read_text().replace("label: disease", "label: sex"))
    assert checked_start(made.hub) == []
    (note,) = checked_start(hub)
    assert note.startswith("federation.label is not as north got it in the zip")


def test_a_table_is_no_file_to_join_with(made: Made, tmp_path: Path) -> None:
    table, settings = tmp_path / "visits.csv", made.site.settings_file.read_bytes()
    table.write_text("age,disease\n31,yes\n", encoding="utf-8")
    with pytest.raises(InputError, match="this is the table itself"):
        onboarding.join(made.approved.signed, made.site, table)
    (tmp_path / "north.yaml").write_text("pathh: visits.csv\n", encoding="utf-8")
    with pytest.raises(InputError, match="pathh: no such key; did you mean 'path'"):
        onboarding.join(made.approved.signed, made.site, tmp_path / "north.yaml")
    assert made.site.settings_file.read_bytes() == settings


def test_a_hub_signs_sites_only(made: Made, tmp_path: Path) -> None:
    """A request for a certificate with which one could administer the federation, or answer as the hub."""
    for participant, kind in (
        ({"name": "eve@example.org", "type": "admin", "org": "eve", "role": "lead"}, "user"),
        ({"name": "example.org", "type": "server", "org": "eve", "host_names": ["example.org"]}, "server"),
    ):
        asked = kit.ask(tmp_path, participant, tmp_path / kind)
        with pytest.raises(InputError, match="a hub signs sites only"):
            onboarding.approve(asked, made.hub, tmp_path / "eve.zip")
    assert not (tmp_path / "eve.zip").exists()


def test_a_name_belongs_to_one_key(made: Made, tmp_path: Path) -> None:
    asked, _ = onboarding.request("north", "eve", tmp_path / "eve")
    with pytest.raises(InputError, match=f"given to another key \\({made.key}\\).*--again"):
        onboarding.approve(asked, made.hub, tmp_path / "eve.zip")
    with pytest.raises(InputError, match=r"signed for a request with another key \(.*the other folder"):
        onboarding.join(made.approved.signed, SiteFolder.at(tmp_path / "eve"), made.data)
    assert not (tmp_path / "eve" / "kit").exists()
    assert onboarding.approve(made.asked, made.hub, tmp_path / "same.zip").key == made.key  # the same one as before
    south = SiteFolder(tmp_path / "south")
    south.root.mkdir()
    south.keep(name="south", org="x")
    with pytest.raises(InputError, match="made out to 'north', and this is 'south'"):
        onboarding.join(made.approved.signed, south, made.data)


def test_another_ca_is_refused(made: Made) -> None:
    wrong = "00:" + made.fingerprint[3:]
    with pytest.raises(InputError, match=f"the CA's fingerprint is {made.fingerprint} and not the expected one"):
        onboarding.join(made.approved.signed, made.site, made.data, wrong)


@pytest.mark.parametrize("what", ["nothing", "text", "other"])
def test_what_is_no_zip_of_ours_is_said(made: Made, tmp_path: Path, what: str) -> None:
    file = tmp_path / "x.zip"
    if what == "text":
        file.write_text("hello")
    elif what == "other":
        with zipfile.ZipFile(file, "w") as z:
            z.writestr("a", "b")
    with pytest.raises(InputError, match=r"x\.zip: (not there|this is not a request)") as e:
        onboarding.approve(file, made.hub)
    assert not re.search(r"Error|BadZip", str(e.value))
    with pytest.raises(InputError, match=r"x\.zip: not (there|what `fedroute site approve` makes)"):
        onboarding.join(file, made.site, made.data)


def test_a_folder_in_use_is_left_alone(made: Made, tmp_path: Path) -> None:
    with pytest.raises(InputError, match="not empty"):
        onboarding.request("north", "st_mary", made.site.root)
    with pytest.raises(InputError, match="not empty"):
        onboarding.init_hub(load(made.root / "config.yaml"), made.hub.root, "localhost", 8002)
    with pytest.raises(InputError, match="this is the folder of a site, and a hub is needed"):
        HubFolder.at(made.site.root)
    with pytest.raises(InputError, match="no site is here"):
        SiteFolder.at(tmp_path)


@pytest.mark.parametrize("name", ["", "a b", "a.b", "server", "-a", "a" * 64, "../a", "ä"])
def test_names_that_would_not_do(name: str, tmp_path: Path) -> None:
    with pytest.raises(InputError, match="the name of a site"):
        onboarding.request(name, "org", tmp_path / "x")
    assert not (tmp_path / "x").exists()


@pytest.mark.parametrize("host", ["bad host", "a_b", "-a", "a.", "::1", "123", "a" * 65, "", "ä.org"])
def test_hosts_that_nobody_could_dial(host: str, made: Made, tmp_path: Path) -> None:
    with pytest.raises(InputError, match="no host name or address"):
        onboarding.init_hub(load(made.root / "config.yaml"), tmp_path / "hub", host, 8002)
    assert not (tmp_path / "hub").exists()
    assert [onboarding.checked_host(h) for h in ("hub.example.org", "localhost", "10.0.0.7", "3com.org")]


def test_a_request_that_was_changed_is_said_in_our_words(made: Made, tmp_path: Path) -> None:
    changed = tmp_path / "changed.zip"
    with zipfile.ZipFile(made.asked) as z, zipfile.ZipFile(changed, "w") as out:
        for name in z.namelist():
            out.writestr(name, b"x" if name.endswith(".csr") else z.read(name))
    with pytest.raises(InputError, match=r"changed\.zip: not as `fedroute site request` made it"):
        onboarding.approve(changed, made.hub, tmp_path / "x.zip")
    with pytest.raises(InputError, match="name a file in a folder that is there"):
        onboarding.approve(made.asked, made.hub, tmp_path / "none" / "x.zip")


def test_a_site_that_has_left_is_back_with_a_new_approval_and_not_without(made: Made, tmp_path: Path) -> None:
    leave(made.site.root)
    assert re.search(r"north has left .* on 20.*has not heard it yet", site_words(site_status(made.site)))
    leave(made.site.root, heard=True)
    assert "the hub has heard it" in site_words(site_status(made.site))
    for kept_out in (examine, to_be_in):
        with pytest.raises(InputError, match=r"north has left the federation for good.*approve` its request again"):
            kept_out(made.site)
    assert "it is stopped" in leave_for_good(made.site, 0.0)
    with pytest.raises(InputError, match="with this zip the site had joined before it left"):
        onboarding.join(made.approved.signed, made.site, made.data)
    assert left(made.site.root) is not None
    time.sleep(1.0)  # the hub's signatures tell seconds apart
    onboarding.join(onboarding.approve(made.asked, made.hub, tmp_path / "new.zip").signed, made.site, made.data)
    assert left(made.site.root) is None
    to_be_in(made.site)


def test_what_fails_leaves_no_half_of_a_key(made: Made, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    def broken(*words: object) -> None:
        raise KeyboardInterrupt

    monkeypatch.setattr(kit, "sign", broken)
    with pytest.raises(KeyboardInterrupt):
        onboarding.init_hub(load(made.root / "config.yaml"), tmp_path / "hub", "localhost", 8002)
    assert not (tmp_path / "hub").exists()


def test_without_the_extra_it_says_what_to_install(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("importlib.util.find_spec", lambda name: None)
    with pytest.raises(InputError, match=r"pip install 'fedroute\[federation\]'"):
        onboarding.request("north", "st_mary", tmp_path / "north")


def test_who_cannot_reach_the_hub_is_told_why(made: Made) -> None:
    assert "no connection to localhost" in why_not(made.site.root)
    startup = made.site.kit / "startup"
    assert "the name nowhere.invalid is not known here" in reach(startup, "nowhere.invalid", 80, "localhost").fault


def test_the_commands_say_it_on_stderr_with_exit_2(made: Made, tmp_path: Path) -> None:
    done = command("site", "join", str(tmp_path / "x.zip"), "--request", str(made.site.root), "--data", str(made.data))
    assert done.returncode == 2
    assert "not there: name the zip that the hub sent back" in done.stderr
    assert not done.stdout
    done = command("site", "status", str(made.site.root), "--json")
    assert json.loads(done.stdout) == {
        "running": False,
        "process": None,
        "restarts": 0,
        "name": "north",
        "joined": True,
        "asked": False,
    }
    done = command("hub", "status", str(made.hub.root))
    assert done.stdout == "the hub is not running\n"
    done = command("site", "stop", str(made.site.root))
    assert done.stdout == "it was not running\n"


def test_a_site_tells_nothing_by_another_meaning_of_its_rows(made: Made) -> None:
    """A hub that calls another column the label is refused; one that asks as the zip said is not, by this at least."""
    heard: list[str] = []
    site = open_site(made.site.root, heard.append)
    given = yaml.safe_load(made.site.config.read_text())["federation"]
    for asked in (given | {"label": "income"}, given | {"drop": ["age"]}):
        with pytest.raises(Refused, match=r"survey: federation\.(label|drop) is not as this site was given it"):
            site("survey", {"asked": json.dumps({"federation": asked, "as_types": {}})})
    with pytest.raises(Refused, match="not what is asked here"):
        site("form", {"asked": "[]"})
    with pytest.raises(Refused, match=r"^survey: the data cannot be read at this site now$"):  # there is no visits.csv
        site("survey", {"asked": json.dumps({"federation": given, "as_types": {}})})
    assert "visits.csv" in heard[-1]


def test_an_owner_accepts_what_stands_there_and_nothing_else(made: Made, tmp_path: Path) -> None:
    site = SiteFolder(shutil.copytree(made.site.root, tmp_path / "north"))
    with pytest.raises(InputError, match="the hub has not asked yet"):
        accept(site)
    rows = [{"what": "the update", "when": "each round", "bytes": 1234, "private": "a model"}]
    (site.root / "manifest.json").write_text(json.dumps({"rows": rows, "sha256": "aa11"}))
    assert manifest_of(site)["accepted"] is False
    assert "each round, 1,234 bytes" in accept(site)
    assert manifest_of(site)["accepted"] is True
    (site.root / "manifest.json").write_text(json.dumps({"rows": rows, "sha256": "bb22"}))
    assert manifest_of(site)["accepted"] is False  # another one is asked about anew
