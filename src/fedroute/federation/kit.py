"""Certificates and NVFLARE's own files, by NVFLARE's own commands in a process of their own: nothing of it is imported.

The CA is the hub's. A site makes its private key itself and sends a request; the hub signs; the site packages. Key
files get mode 600. No network is used."""

import hashlib
import importlib.util
import json
import os
import shutil
import ssl
import subprocess
import sys
import tempfile
import zipfile
from collections.abc import Mapping
from pathlib import Path
from typing import Any

from fedroute.durable import write
from fedroute.errors import InputError, RunFailed
from fedroute.federation.folders import PROJECT, HubFolder
from fedroute.federation.transport import MOST

HUB_COMPONENT = "fedroute.federation.nvflare_hub.HubComponent"
SITE_COMPONENT = "fedroute.federation.nvflare_site.SiteComponent"
MANY = 10_000  # sites that a hub lets in; NVFLARE's own limit is 100
NOTHING = {"submit_job", "clone_job", "manage_job", "download_job", "view", "operate", "shell_commands", "byoc",
           "server-predeployed-flwr"}  # fmt: skip
ROLES = ("project_admin", "org_admin", "lead", "member")
DENY_ALL = {
    "format_version": "1.0",
    "permissions": {role: dict.fromkeys(sorted(NOTHING), "none") for role in ROLES},
}
TRANSPORT = {  # comm_config.json: no connections between sites, no message larger than what a payload may be
    "allow_adhoc_conns": False,
    "streaming_max_blob_size": MOST + (1 << 20),
    "heartbeat_interval": 10,
}


def need_nvflare() -> None:
    """Raises InputError where the extra is not installed."""
    if importlib.util.find_spec("nvflare") is None:
        raise InputError(
            "a real federation runs on NVFLARE, which is not installed: pip install 'fedroute[federation]'"
        )


def make_authority(hub: HubFolder, host: str, port: int) -> None:
    """The federation's CA, its key in ca/rootCA.key (mode 600)."""
    profile: dict[str, Any] = {
        "name": PROJECT,
        "scheme": "http",
        "connection_security": "mtls",
        "server": {"host": host, "fed_learn_port": port, "admin_port": port},
    }
    write(hub.profile, _yaml(profile))
    _nvflare(hub.root, "cert", "init", "--profile", str(hub.profile), "-o", str(hub.ca))


def ask(folder: Path, participant: Mapping[str, Any], request: Path) -> Path:
    """Makes a private key and a request for a certificate in `request`; the zip, in which the key is not."""
    with tempfile.TemporaryDirectory() as scratch:
        file = Path(scratch) / "participant.yaml"
        write(file, _yaml({"name": PROJECT, "participants": [dict(participant)]}))
        _nvflare(folder, "cert", "request", "-p", str(file), "--out", str(request))
    for key in request.glob("*.key"):
        key.chmod(0o600)
    return request / f"{participant['name']}.request.zip"


def read_request(request: Path) -> dict[str, Any]:
    """What a request asks for: name, org, kind, cert_type, csr_sha256, public_key_sha256. Raises InputError."""
    return _member(request, "request.json", "a request, as `fedroute site request` makes it")


def key_asked_for(request: Path) -> str:
    """SHA-256 of the public key that a site's folder has asked with. Raises InputError where there is none."""
    if request.is_dir() and not list(request.glob("*.key")):
        raise InputError(f"{request}: the private key is gone: make a new request in a new folder")
    try:
        return str(json.loads((request / "request.json").read_text(encoding="utf-8"))["public_key_sha256"])
    except (OSError, ValueError, KeyError, TypeError) as e:
        raise InputError(
            f"{request}: holds no request{_reason(e)}: name the folder that `fedroute site request` made"
        ) from None


def key_signed(signed: Path) -> str:
    """The same of the key in the certificate that the hub signed. Raises InputError."""
    what = "a signed request, as `fedroute site approve` makes it"
    try:
        return str(_member(signed, "signed.json", what)["hashes"]["public_key_sha256"])
    except (KeyError, TypeError):
        raise InputError(f"{signed}: this is not {what}") from None


def sign(hub: HubFolder, request: Path, signed: Path) -> None:
    _nvflare(hub.root, "cert", "approve", str(request), "-c", str(hub.ca), "--profile", str(hub.profile), "--out",
             str(signed), "--force")  # fmt: skip


def fingerprint(signed: Path) -> str:
    """SHA-256 of the CA's certificate in a signed zip, in pairs with colons."""
    try:
        with zipfile.ZipFile(signed) as z:
            text = z.read("rootCA.pem").decode()
        digest = hashlib.sha256(ssl.PEM_cert_to_DER_cert(text)).hexdigest().upper()
    except (OSError, ValueError, KeyError, zipfile.BadZipFile) as e:
        raise InputError(f"{signed}: holds no certificate of a CA{_reason(e)}") from None
    return ":".join(digest[i : i + 2] for i in range(0, len(digest), 2))


def package(folder: Path, signed: Path, request: Path, kit: Path, expected: str) -> None:
    """NVFLARE's startup kit at `kit`, with the private key of `request`; a kit that is there is replaced."""
    with tempfile.TemporaryDirectory(dir=folder) as scratch:
        _nvflare(folder, "package", str(signed), "--request-dir", str(request), "-w", scratch,
                 "--fingerprint", f"SHA256:{expected}")  # fmt: skip
        made = [p for p in Path(scratch).glob("*/prod_*/*") if (p / "startup").is_dir()]
        if len(made) != 1:
            raise RunFailed(f"{signed}: NVFLARE has made {len(made)} kits where one was expected")
        shutil.rmtree(kit, ignore_errors=True)
        made[0].rename(kit)
    for key in (kit / "startup").glob("*.key"):
        key.chmod(0o600)
    kit.chmod(0o700)


def equip_hub(kit: Path, component: str = HUB_COMPONENT, **args: Any) -> None:
    """local/ of the hub's kit: our component, its storage inside the kit, nobody may submit anything."""
    storage = kit / "storage"
    resources = {
        "format_version": 2,
        "class_list_enforcement_mode": "enforce",
        "class_allow_list": [],
        "servers": [{"admin_storage": "transfer", "max_num_clients": MANY, "heart_beat_timeout": 600}],
        "snapshot_persistor": {
            "path": "nvflare.app_common.state_persistors.storage_state_persistor.StorageStatePersistor",
            "args": {
                "uri_root": "/",
                "storage": _storage({"root_dir": str(storage / "snapshots"), "uri_root": "/"}),
            },
        },
        "components": [
            {
                "id": "job_scheduler",
                "path": "nvflare.app_common.job_schedulers.job_scheduler.DefaultJobScheduler",
                "args": {"max_jobs": 1},
            },
            {
                "id": "job_manager",
                "path": "nvflare.apis.impl.job_def_manager.SimpleJobDefManager",
                "args": {"uri_root": str(storage / "jobs"), "job_store_id": "job_store"},
            },
            {"id": "job_store"} | _storage({}),
            {"id": "fedroute", "path": component, "args": args},
        ],
    }
    _equip(kit, resources)


def equip_site(kit: Path, component: str = SITE_COMPONENT, **args: Any) -> None:
    """local/ of a site's kit: our component alone, no log leaves, nobody may run anything."""
    resources = {
        "format_version": 2,
        "class_list_enforcement_mode": "enforce",
        "class_allow_list": [],
        "allow_log_streaming": False,
        "client": {"retry_timeout": 30, "compression": "Gzip"},
        "components": [{"id": "fedroute", "path": component, "args": args}],
    }
    _equip(kit, resources)


def address(kit: Path, host: str, port: int) -> None:
    """Where a site dials: another name of the same hub, whose certificate stays the one that is asked for."""
    file = kit / "startup" / "fed_client.json"
    found = json.loads(file.read_text(encoding="utf-8"))
    for server in found["servers"]:
        server["service"]["target"] = f"{host}:{port}"
    write(file, json.dumps(found, indent=1))


def _equip(kit: Path, resources: Mapping[str, Any]) -> None:
    local = kit / "local"
    local.mkdir(exist_ok=True)
    for name, content in {
        "resources.json": resources,
        "authorization.json": DENY_ALL,
        "comm_config.json": TRANSPORT,
        "log_config.json": _logging(),
    }.items():
        write(local / name, json.dumps(content, indent=1) + "\n")


def _storage(args: Mapping[str, Any]) -> dict[str, Any]:
    return {"path": "nvflare.app_common.storages.filesystem_storage.FilesystemStorage", "args": dict(args)}


def _logging() -> dict[str, Any]:
    """NVFLARE's own log, kept small; what fedroute says stands in log.txt of the folder."""
    handler = {
        "class": "logging.handlers.RotatingFileHandler",
        "formatter": "plain",
        "filename": "nvflare.log",
        "maxBytes": 10 << 20,
        "backupCount": 3,
    }
    return {
        "version": 1,
        "disable_existing_loggers": False,
        "formatters": {"plain": {"format": "%(asctime)s %(name)s %(levelname)s %(message)s"}},
        "handlers": {"file": handler},
        "loggers": {"root": {"level": "INFO", "handlers": ["file"]}},
    }


def _reason(e: Exception) -> str:
    """In words for people, where there is one that they could do something about."""
    if isinstance(e, OSError) and e.strerror:
        return f" ({e.strerror.lower()})"
    return " (it is no zip)" if isinstance(e, zipfile.BadZipFile) else ""


def _member(archive: Path, name: str, what: str) -> dict[str, Any]:
    try:
        with zipfile.ZipFile(archive) as z:
            if z.getinfo(name).file_size > 1 << 20:
                raise InputError(f"{archive}: {name} in it is too large: this is not {what}")
            found = json.loads(z.read(name))
    except FileNotFoundError:
        raise InputError(f"{archive}: not there: name {what}") from None
    except (OSError, ValueError, KeyError, zipfile.BadZipFile) as e:
        raise InputError(f"{archive}: this is not {what}{_reason(e)}") from None
    if not isinstance(found, dict):
        raise InputError(f"{archive}: this is not {what}")
    return found


def _nvflare(home: Path, *words: str) -> None:
    """One command of NVFLARE. It keeps a record of what was signed in its user's home: here, the folder. Raises
    RunFailed with its words."""
    need_nvflare()
    done = subprocess.run(
        [sys.executable, "-m", "nvflare.cli", *words],
        env=os.environ | {"HOME": str(home)},
        stdin=subprocess.DEVNULL,
        capture_output=True,
        text=True,
        check=False,
    )
    if done.returncode:
        words_of_it = " ".join((done.stderr + " " + done.stdout).split())[-600:]
        raise RunFailed(f"nvflare {' '.join(words[:2])} failed: {words_of_it}")


def _yaml(content: Mapping[str, Any]) -> str:
    import yaml

    return str(yaml.safe_dump(dict(content), sort_keys=False, allow_unicode=True))
