"""The folder of a hub and that of a site: which file is what. Everything of a process is inside its folder."""

import json
import re
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Self

from fedroute.durable import write
from fedroute.errors import InputError

NAME = re.compile(r"[A-Za-z0-9](?:[A-Za-z0-9_-]{0,61}[A-Za-z0-9])?")
PROJECT = "fedroute"  # what NVFLARE calls the project; federations are told apart by their CA


@dataclass(frozen=True)
class Folder:
    """A hub's or a site's folder. settings.json: what init or join was told."""

    root: Path

    @classmethod
    def at(cls, root: Path) -> Self:
        """The folder that is there. Raises InputError where it is none, or the other kind."""
        folder = cls(root.absolute())
        if not folder.settings_file.exists():
            raise InputError(f"{root}: {cls.missing()}")
        kind = folder.settings().get("kind")
        if kind != cls.kind():
            raise InputError(f"{root}: this is the folder of a {kind}, and a {cls.kind()} is needed")
        return folder

    @classmethod
    def kind(cls) -> str:
        raise NotImplementedError  # abstract: a hub's folder and a site's each say their own

    @classmethod
    def missing(cls) -> str:
        raise NotImplementedError  # abstract: a hub's folder and a site's each say their own

    @property
    def settings_file(self) -> Path:
        return self.root / "settings.json"

    @property
    def kit(self) -> Path:
        """NVFLARE's own: startup/ (certificate, key, address) and local/ (our component, policy, logging)."""
        return self.root / "kit"

    @property
    def config(self) -> Path:
        """The run's config; at a site, what the hub gave it of that."""
        return self.root / "federation.yaml"

    @property
    def log(self) -> Path:
        return self.root / "log.txt"

    def settings(self) -> dict[str, Any]:
        try:
            found = json.loads(self.settings_file.read_text(encoding="utf-8"))
        except (OSError, ValueError) as e:
            raise InputError(f"{self.settings_file}: not readable: {e}") from None
        if not isinstance(found, dict):
            raise InputError(f"{self.settings_file}: not the settings of a {self.kind()}")
        return found

    def keep(self, **settings: Any) -> None:
        write(self.settings_file, json.dumps({"kind": self.kind()} | settings, indent=1) + "\n")


class HubFolder(Folder):
    """settings: host, port, name of the site's certificate, serve, threads."""

    @classmethod
    def kind(cls) -> str:
        return "hub"

    @classmethod
    def missing(cls) -> str:
        return "no hub is here: `fedroute hub init CONFIG.yaml --out FOLDER` makes one"

    @property
    def ca(self) -> Path:
        """The key with which sites are admitted: guard it."""
        return self.root / "ca"

    @property
    def profile(self) -> Path:
        return self.root / "profile.yaml"

    @property
    def run(self) -> Path:
        return self.root / "run"


class SiteFolder(Folder):
    """settings: name, org; after join: host, port, hub (the name in the hub's certificate), fingerprint, threads."""

    @classmethod
    def kind(cls) -> str:
        return "site"

    @classmethod
    def missing(cls) -> str:
        return "no site is here: `fedroute site request NAME --org ORG --out FOLDER` begins one"

    @property
    def request(self) -> Path:
        """The private key and what was asked for with it."""
        return self.root / "request"

    @property
    def data(self) -> Path:
        """Where this site's data lie: the `federation:` part of its own file."""
        return self.root / "data.yaml"

    @property
    def joined(self) -> bool:
        return (self.kit / "startup" / "client.crt").exists()

    def to_join(self) -> None:
        """Raises InputError where the site has not joined yet."""
        if not self.joined:
            sent = self.root / f"{self.settings()['name']}.request.zip"
            raise InputError(
                f"{self.root}: this site has not joined yet: send {sent} to the hub, and `fedroute site join "
                "SIGNED.zip` with what comes back"
            )


def checked_name(name: str, what: str) -> str:
    """A name that is good in certificates, on the wire and in file names. Raises InputError."""
    if not NAME.fullmatch(name) or name in ("server", "fedroute"):
        raise InputError(
            f"{what} {name!r}: a-z, A-Z, 0-9, - and _ (these two not at an end), at most 63, and not `server`: it "
            "stands in the certificate and names the client"
        )
    return name
