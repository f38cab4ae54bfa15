"""What a gateway in a hub's or a site's folder allows: `gateway.yaml`, beside settings.json, which says where it is."""

from collections.abc import Mapping
from pathlib import Path
from typing import Any

from pydantic import ValidationError

from fedroute.errors import InputError
from fedroute.options import nearest
from fedroute.service.addresses import HERE, is_url
from fedroute.service.settings import Settings

NAME = "gateway.yaml"
FILES = ("tokens", "certificate", "key", "audit_key")  # paths, which begin at the folder
OWN = frozenset({"audit"})  # always audit.sqlite in the folder


class GatewayFile(Settings):
    """The limits of a gateway, and certificate and key (PEM), with which it is HTTPS and nothing else."""

    certificate: Path | None = None
    key: Path | None = None


def asked_at(
    root: Path, settings: Mapping[str, Any], gateway: str | None, tokens: Path | None
) -> dict[str, str | None]:
    """What settings.json says of a gateway from now on: gateway, tokens. gateway: HOST:PORT, or "off"; None: as before.

    Raises InputError where it is no place, or anybody who reaches it could ask."""
    from fedroute.federation.onboarding import place

    if gateway == "off":
        return {"gateway": None, "tokens": None}
    made = {
        "gateway": gateway or settings.get("gateway"),
        "tokens": str(tokens.absolute()) if tokens else settings.get("tokens"),
    }
    if not made["gateway"]:
        raise InputError("--tokens: of which gateway? give --gateway HOST:PORT too")
    place(made["gateway"], "--gateway")
    read_gateway(root, {**settings, **made})
    return made


def read_gateway(root: Path, settings: Mapping[str, Any]) -> GatewayFile:
    """gateway.yaml of a folder over what `settings` say (gateway, tokens); without the file those alone.

    Raises InputError for what it cannot mean, and where anybody who reaches the gateway could ask."""
    import yaml

    file = root / NAME
    try:
        given = yaml.safe_load(file.read_text(encoding="utf-8")) if file.exists() else {}
    except OSError as e:
        raise InputError(f"{file}: cannot be read ({e.strerror})") from None
    except UnicodeDecodeError:
        raise InputError(f"{file}: is not UTF-8 text; write lines such as `rate: 50`") from None
    except yaml.YAMLError as e:  # which says in which line
        raise InputError(f"{file}: is not YAML: {' '.join(str(e).split())}; write lines such as `rate: 50`") from None
    if not isinstance(given := given or {}, dict):
        raise InputError(f"{file}: is no list of settings; write lines such as `rate: 50`")
    known = sorted({*GatewayFile.model_fields} - OWN)
    for key in given:
        if key not in known:
            raise InputError(f"{file}: {key}: no such setting; {nearest(str(key), known)}")
    found = {"tokens": settings.get("tokens")} | given
    found |= {k: root / str(found[k]) for k in FILES if found.get(k)}
    try:
        made = GatewayFile.model_validate(found | {"audit": root / "audit.sqlite"})
    except ValidationError as e:
        first = e.errors()[0]
        raise InputError(f"{file}: {'.'.join(map(str, first['loc']))}: {first['msg'].lower()}") from None
    _check_addresses(root, file, settings, made.addresses)
    if not made.tokens and settings["gateway"].rpartition(":")[0].strip("[]") not in HERE:
        raise InputError(f"gateway {settings['gateway']}: anybody who reaches it could ask: give --tokens FILE (or "
                         f"`tokens:` in {file}), or 127.0.0.1")  # fmt: skip
    return made


def _check_addresses(root: Path, file: Path, settings: Mapping[str, Any], addresses: Mapping[str, str]) -> None:
    """Names are held against the sites that the hub has approved, once it has approved any: those who have left are
    still among them, and those who come later already."""
    from fedroute.federation.onboarding import approved_sites

    if addresses and settings.get("kind") == "site":
        raise InputError(f"{file}: addresses: a site's gateway has none to give; put them into the hub's {NAME}")
    known = sorted(approved_sites(root)) if addresses else []
    for client, url in addresses.items():
        if known and client not in known:
            raise InputError(f"{file}: addresses.{client}: no site of that name is approved; {nearest(client, known)}")
        if not is_url(url):
            raise InputError(
                f"{file}: addresses.{client}: {url!r} is no URL; give one such as https://gateway.north.org"
            )
