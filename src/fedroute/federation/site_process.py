"""What answers the hub in a site's process: the Site over this site's own data, by the config it was given."""

import json
import threading
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any

from fedroute.errors import InputError
from fedroute.federation.folders import SiteFolder
from fedroute.federation.form import differs
from fedroute.federation.left_file import left
from fedroute.federation.site import Site
from fedroute.federation.site_gateway import beside
from fedroute.federation.site_spec import read_data_spec
from fedroute.federation.transport import Payload, Refused

ASKS_BY = {"survey": "federation", "form": "spec"}  # methods that say what the rows mean, and where in what they ask


class Joined(Site):
    """A site that tells nothing by another meaning of its rows than the one that it was given when it joined: a hub
    could call any column the label."""

    given: Mapping[str, Any] = {}
    gateway: threading.Event | None = None  # ends its own gateway
    data: Path | None = None  # DATA.yaml, which is looked at anew whenever its rows are

    def close(self) -> None:
        if self.gateway:
            self.gateway.set()
        super().close()

    def __call__(self, method: str, payload: Payload) -> Payload:
        if method in ASKS_BY and (key := differs(self.given, self._asked_by(method, payload))):
            self.log(f"{method} was refused: federation.{key} is not as this site was given it")
            self._stuck = None  # no row of this site mends it
            self.fault = (
                f"{method}: federation.{key} is not as this site was given it: where the config has changed, sign the "
                "site's request again, and let it join anew"
            )
            raise Refused(self.fault)
        return super().__call__(method, payload)

    def described(self) -> Mapping[str, Any]:
        if self.data is not None:
            self.source = read_data_spec(self.data).model_dump(mode="json", exclude_unset=True)
        return self.source

    @staticmethod
    def _asked_by(method: str, payload: Payload) -> Mapping[str, Any]:
        try:
            found = json.loads(str(payload.get("asked")))[ASKS_BY[method]]
        except (ValueError, KeyError, TypeError, RecursionError):
            found = None
        if not isinstance(found, dict):
            raise Refused(f"{method}: not what is asked here; is the hub of the same version of fedroute?")
        return found


def open_site(folder: Path, say: Callable[[str], None]) -> Joined:
    """The site of a folder that has joined. Raises InputError where its settings are wrong; where DATA.yaml is, the
    site's fault says so, until it is mended."""
    import yaml

    at = SiteFolder.at(folder)
    settings = at.settings()
    data = Path(settings["data"])
    gone = left(at.root) is not None  # then it only says so, whatever has become of its data
    site = Joined(
        settings["name"], at.root, {}, base=data.parent, file=str(data), accept=settings.get("accept", ""), log=say
    )
    site.data = None if gone else data
    try:
        site.given = yaml.safe_load(at.config.read_text(encoding="utf-8"))["federation"]
    except (OSError, KeyError, TypeError, yaml.YAMLError) as e:
        raise InputError(f"{at.config}: cannot be read ({type(e).__name__}): join again") from None
    site.gateway = beside(at, site, say)
    return site
