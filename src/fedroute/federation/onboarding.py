"""From nothing to a federation: the hub's folder, a site's request, the hub's signature, and the site's folder.

A site's private key is made at the site and never leaves it. What a site gets from the hub is one zip: its certificate,
the CA's, the hub's address and the config. Who gives the zip a wrong CA cannot be told from the zip: the two sides
compare fingerprints by another way, such as the telephone."""

import contextlib
import io
import ipaddress
import json
import re
import shutil
import time
import zipfile
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from fedroute.config import Config
from fedroute.durable import taking, write
from fedroute.errors import InputError, RunFailed
from fedroute.federation import kit
from fedroute.federation.folders import HubFolder, SiteFolder, checked_name
from fedroute.federation.left_file import come_back, left
from fedroute.federation.ports import one_port
from fedroute.federation.site_spec import joining_spec
from fedroute.federation.supervise import Running

CERTIFICATE, ABOUT = "certificate.signed.zip", "federation.json"
HUB_ORG = "hub"
HOST = re.compile(
    r"(?=.*[A-Za-z])([A-Za-z0-9]([A-Za-z0-9-]{0,61}[A-Za-z0-9])?\.)*[A-Za-z0-9]([A-Za-z0-9-]{0,61}[A-Za-z0-9])?"
)


def init_hub(
    config: Config, out: Path, host: str, port: int, *, gateway: str | None = None, tokens: Path | None = None
) -> HubFolder:
    """A hub's folder with its CA, its own certificate, and the config. host: the name or address that sites dial, which
    stands in the certificate; gateway: HOST:PORT where routed queries are answered, nowhere by default, and tokens: who
    may ask there.

    Raises InputError where the folder is in use, the host is none, or one port is given twice."""
    kit.need_nvflare()
    checked_host(host)
    if fault := one_port(port, gateway):
        raise InputError(f"--gateway {gateway}: {fault}")
    fresh = not out.exists()
    hub = HubFolder(_new(out, "hub"))
    with _whole(hub.root, fresh):
        _fill_hub(hub, config, host, port, gateway, tokens)
    return hub


def _fill_hub(hub: HubFolder, config: Config, host: str, port: int, gateway: str | None, tokens: Path | None) -> None:
    write(hub.config, _yaml(config.resolved()))
    kit.make_authority(hub, host, port)
    own = hub.root / "request"
    asked = kit.ask(hub.root, {"name": host, "type": "server", "org": HUB_ORG, "host_names": [host]}, own)
    signed = hub.root / "hub.signed.zip"
    kit.sign(hub, asked, signed)
    kit.package(hub.root, signed, own, hub.kit, kit.fingerprint(signed))
    kit.equip_hub(hub.kit, folder=str(hub.root))
    hub.keep(
        host=host, port=port, org=HUB_ORG, fingerprint=kit.fingerprint(signed),
        gateway=gateway, tokens=str(tokens.absolute()) if tokens else None,
    )  # fmt: skip


def request(name: str, org: str, out: Path) -> tuple[Path, str]:
    """A site's folder with its private key (mode 600), and the zip to send to the hub; the zip's path, and the
    fingerprint of the key that the hub will be shown."""
    kit.need_nvflare()
    checked_name(name, "the name of a site")
    participant = {"name": name, "type": "client", "org": _org(org)}
    fresh = not out.exists()
    site = SiteFolder(_new(out, "site"))
    with _whole(site.root, fresh):
        asked = kit.ask(site.root, participant, site.request)
        sent = site.root / asked.name
        asked.rename(sent)
        site.keep(name=name, org=org)
    return sent, shown(kit.read_request(sent)["public_key_sha256"])


@dataclass(frozen=True)
class Approved:
    """name, org: of the site. key: the fingerprint of its key, ca: of the CA; signed: the zip for the site."""

    name: str
    org: str
    key: str
    ca: str
    signed: Path


def approve(asked: Path, hub: HubFolder, out: Path | None = None, again: bool = False) -> Approved:
    """Signs a site's request. again: also where the name was given to another key before, whose certificate stays
    valid until it ends. Raises InputError for a request that is none of a site."""
    found = kit.read_request(asked)
    if found.get("kind") != "site" or found.get("cert_type") != "client" or found.get("cert_role"):
        raise InputError(
            f"{asked}: asks for a certificate of kind {found.get('kind')!r} with role {found.get('cert_role')!r}: a "
            "hub signs sites only; nobody can administer it from outside"
        )
    name, key = checked_name(str(found["name"]), "the name of the site"), str(found["public_key_sha256"])
    known = approved_sites(hub.root)
    if name in known and known[name]["key"] != key and not again:
        raise InputError(
            f"{asked}: {name!r} was given to another key ({shown(known[name]['key'])}) on {known[name]['at']}: ask the "
            "site whether this request is its own, then `--again`"
        )
    signed = out or Path.cwd() / f"{name}.signed.zip"
    if signed.is_dir() or not signed.parent.is_dir():
        raise InputError(f"--out {signed}: name a file in a folder that is there")
    if name == hub.settings()["host"]:
        raise InputError(f"{asked}: {name!r} is what the hub itself is called: let the site take another name")
    scratch = hub.root / f".{name}.signed.zip"
    if not (hub.ca / "rootCA.key").exists():
        raise InputError(f"{hub.ca / 'rootCA.key'}: not there, and without it nobody can be let in: bring it back")
    try:
        kit.sign(hub, asked, scratch)
    except RunFailed as e:
        raise InputError(
            f"{asked}: not as `fedroute site request` made it; let the site make and send a new one ({e})"
        ) from None
    settings = hub.settings()
    about = {k: settings[k] for k in ("host", "port", "fingerprint")} | {"name": name, "config": _given(hub)}
    bundle = io.BytesIO()
    with zipfile.ZipFile(bundle, "w", zipfile.ZIP_DEFLATED) as z:
        z.writestr(CERTIFICATE, scratch.read_bytes())
        z.writestr(ABOUT, json.dumps(about, ensure_ascii=False))
    write(signed, bundle.getvalue())
    scratch.unlink()
    given = json.dumps(about["config"]["federation"], sort_keys=True, ensure_ascii=False)
    known[name] = {"org": found["org"], "key": key, "at": time.strftime("%Y-%m-%d"), "given": given}
    write(hub.root / "approved.json", json.dumps(known, indent=1, ensure_ascii=False) + "\n")
    return Approved(name, str(found["org"]), shown(key), settings["fingerprint"], signed)


def join(signed: Path, site: SiteFolder, data: Path, expected: str | None = None, dial: str | None = None) -> str:
    """The site's kit from the zip that the hub sent back, its own key and its own data file; the CA's fingerprint.

    expected: that fingerprint, as the hub told it by another way. dial: HOST:PORT, to dial instead of the hub's.
    A site that has left is back with it, where the hub has signed its request again since. Raises InputError where the
    zip is none, belongs to another request or has another fingerprint, and where the site runs or has left by it."""
    kit.need_nvflare()
    if Running(site.root).alive:
        raise InputError(f"{site.root}: the site runs: `fedroute site stop {site.root}` first")
    settings, about = site.settings(), _about(signed)
    if about["name"] != settings["name"]:
        raise InputError(
            f"{signed}: made out to {about['name']!r}, and this is {settings['name']!r}: take the other zip"
        )
    joining_spec(data, about["config"].get("federation") or {})
    certificate, kept = _inside(signed, CERTIFICATE), site.root / CERTIFICATE
    if left(site.root) and kept.exists() and kept.read_bytes() == certificate:
        raise InputError(
            f"{signed}: with this zip the site had joined before it left: let the hub `fedroute site approve` its "
            "request again, and take the zip that comes of that"
        )
    inner = site.root / f".{CERTIFICATE}"
    write(inner, certificate)
    try:
        found = _joined(site, signed, inner, about, expected, dial)
        inner.replace(kept)
    finally:
        inner.unlink(missing_ok=True)
    host, port = place(dial, "--address") if dial else (about["host"], about["port"])
    write(site.config, _yaml(about["config"]))
    site.keep(
        name=settings["name"], org=settings["org"], host=host, port=port, hub=about["host"], fingerprint=found,
        data=str(data.absolute()),
    )  # fmt: skip
    come_back(site.root)
    return found


def _joined(
    site: SiteFolder, signed: Path, inner: Path, about: dict[str, Any], expected: str | None, dial: str | None
) -> str:
    """The kit, made; the CA's fingerprint. inner: what the hub signed, as NVFLARE has it."""
    asked, key = kit.key_asked_for(site.request), kit.key_signed(inner)
    if asked != key:
        raise InputError(
            f"{signed}: signed for a request with another key ({shown(key)}), and the key in {site.root} is "
            f"{shown(asked)}: take the zip that was made from this folder's request, or the other folder"
        )
    found = kit.fingerprint(inner)
    if expected and _plain(expected) != _plain(found):
        raise InputError(
            f"{signed}: the CA's fingerprint is {found} and not the expected one: this zip is not from that hub, do "
            "not join"
        )
    host, port = place(dial, "--address") if dial else (about["host"], about["port"])
    try:
        kit.package(site.root, inner, site.request, site.kit, found)
    except RunFailed as e:
        raise InputError(f"{signed}: not as the hub made it; ask for it again ({e})") from None
    kit.equip_site(site.kit, folder=str(site.root))
    if dial:
        kit.address(site.kit, host, port)
    return found


def _new(out: Path, kind: str) -> Path:
    """An empty folder, open to its owner alone. Raises InputError where it is not empty."""
    folder = out.absolute()
    if folder.exists() and (not folder.is_dir() or any(folder.iterdir())):
        raise InputError(f"{out}: not empty; the keys of a {kind} are made in a folder of its own: name another one")
    with taking(folder):
        folder.mkdir(parents=True, exist_ok=True)
        folder.chmod(0o700)
    return folder


@contextlib.contextmanager
def _whole(folder: Path, fresh: bool) -> Iterator[None]:
    """What fails leaves no half of a key, and no folder where there was none before."""
    try:
        yield
    except BaseException:
        for path in folder.iterdir():
            shutil.rmtree(path) if path.is_dir() else path.unlink()
        if fresh:
            folder.rmdir()
        raise


def checked_host(host: str) -> str:
    """A host name or an address, as it can stand in a certificate. Raises InputError."""
    with contextlib.suppress(ValueError):
        ipaddress.IPv4Address(host)
        return host
    if len(host) > 64 or not HOST.fullmatch(host):
        raise InputError(
            f"--name {host!r}: no host name or address that sites could dial: letters, digits, - and dots, at most 64, "
            "such as hub.example.org or 192.0.2.7"
        )
    return host


def place(text: str, option: str) -> tuple[str, int]:
    """HOST:PORT in its two parts. Raises InputError, which names the option."""
    host, _, port = text.rpartition(":")
    if not host or not port.isdigit() or not 0 < int(port) < 65536:
        raise InputError(f"{option} {text}: give HOST:PORT, such as hub.example.org:8002")
    return host, int(port)


def shown(digest: str) -> str:
    """A fingerprint as it is read out: pairs with colons."""
    plain = _plain(digest)
    return ":".join(plain[i : i + 2] for i in range(0, len(plain), 2)).upper()


def _plain(digest: str) -> str:
    return digest.upper().removeprefix("SHA256:").replace(":", "").lower()


def _org(org: str) -> str:
    if not org.replace("_", "").isalnum() or not org.isascii():
        raise InputError(f"--org {org!r}: letters, digits and _ only, such as st_mary")
    return org


def _given(hub: HubFolder) -> dict[str, Any]:
    """The config as sites get it: without the paths of the hub's own disk."""
    import yaml

    config: dict[str, Any] = yaml.safe_load(hub.config.read_text(encoding="utf-8"))
    config["federation"] = {k: v for k, v in config["federation"].items() if k not in ("path", "paths")}
    return config


def approved_sites(root: Path) -> dict[str, dict[str, str]]:
    """Name -> {org, key, at, given: the `federation:` part in its zip, as JSON; not of those of old} of each site that
    the hub of this folder has ever approved. Raises InputError where the
    file of them cannot be read."""
    file = root / "approved.json"
    if not file.exists():
        return {}
    try:
        found: dict[str, dict[str, str]] = dict(json.loads(file.read_text(encoding="utf-8")))
    except (OSError, ValueError, TypeError) as e:
        why = (e.strerror or "").lower() if isinstance(e, OSError) else "it is not what was written"
        raise InputError(f"{file}: cannot be read ({why}): bring it back from a copy") from None
    return found


def _about(signed: Path) -> dict[str, Any]:
    text = _inside(signed, ABOUT)
    try:
        about = json.loads(text)
        return {"name": str(about["name"]), "host": str(about["host"]), "port": int(about["port"]),
                "config": dict(about["config"])}  # fmt: skip
    except (ValueError, KeyError, TypeError):
        raise InputError(f"{signed}: not what `fedroute site approve` makes: ask the hub for it again") from None


def _inside(signed: Path, name: str) -> bytes:
    try:
        with zipfile.ZipFile(signed) as z:
            if z.getinfo(name).file_size > 16 << 20:
                raise InputError(f"{signed}: {name} in it is too large")
            return z.read(name)
    except FileNotFoundError:
        raise InputError(f"{signed}: not there: name the zip that the hub sent back") from None
    except (OSError, KeyError, zipfile.BadZipFile):
        raise InputError(f"{signed}: not what `fedroute site approve` makes: ask the hub for it again") from None


def _yaml(content: dict[str, Any]) -> str:
    import yaml

    return str(yaml.safe_dump(content, sort_keys=False, allow_unicode=True))
