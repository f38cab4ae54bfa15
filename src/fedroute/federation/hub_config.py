"""What of a hub's config can be checked before any site hears of it."""

import json
from collections.abc import Mapping
from typing import TYPE_CHECKING, Any

from fedroute.data.sources.files import AT_SITES
from fedroute.errors import InputError
from fedroute.federation.site_spec import ELSEWHERE

if TYPE_CHECKING:
    from fedroute.config import Config
    from fedroute.data.federation import Federation
    from fedroute.federation.folders import HubFolder


def checked_config(config: "Config") -> tuple["Config", list[str]]:
    """The config as hub and sites get it, and notes: what only a site can say, where its rows lie, is taken out.

    Raises InputError for options of data, model, algorithm and hub that cannot be, as far as that shows without a
    row: of tables model and algorithm are put together for columns that are made up; of anything else the hub sees
    once the sites have told of the shape of their rows."""
    from fedroute.algorithms import make
    from fedroute.federation.form import hub_spec, without_paths
    from fedroute.federation.hub import goes_with
    from fedroute.federation.spec import HubSpec

    hub_spec(config.federation)
    goes_with(config, config.hub or HubSpec())
    make(config.algorithm)
    if (made_up := _made_up(config)) is not None:
        _put_together(config, made_up)
    notes = [f"federation.{key}: left out; where its rows lie each site says in its own DATA.yaml"
             for key in ELSEWHERE if config.federation.get(key) is not None]  # fmt: skip
    given = without_paths(config.federation)
    if given.get("source") in ("images", "npz"):  # which a config must have a path for
        given["path"] = AT_SITES
    return config.model_copy(update={"federation": given}), notes


def checked_start(hub: "HubFolder", new_run: bool = False) -> list[str]:
    """Notes on a hub that can start. Raises InputError, which names file and key, where the hub's config is wrong, or
    is not that of the run that is there; with `new_run` that may be another."""
    from fedroute.config import load
    from fedroute.federation.run_before import same_run

    config = load(hub.config)
    try:
        checked_config(config)
    except InputError as e:
        raise InputError(f"{hub.config}: {e}") from None
    notes = [text] if (text := _to_join_anew(config.federation, hub)) else []
    if not new_run:
        try:
            same_run(config, hub.run)
        except InputError as e:  # all that a change needs, at once
            raise InputError("\n".join([str(e), *notes])) from None
    return notes


def _to_join_anew(federation: Mapping[str, Any], hub: "HubFolder") -> str:
    """What is to be done where sites hold another `federation:` part than this one: they tell nothing by it."""
    from fedroute.federation.form import differs
    from fedroute.federation.onboarding import approved_sites

    keys, sites = set[str](), list[str]()
    for name, site in approved_sites(hub.root).items():
        if "given" in site and (key := differs(json.loads(site["given"]), federation)):
            keys.add(f"federation.{key}")
            sites.append(name)
    if not sites:
        return ""
    return (
        f"{' and '.join(sorted(keys))} is not as {', '.join(sorted(sites))} got it in the zip, and by another no site "
        f"tells anything: for each of them `fedroute site approve REQUEST.zip --hub {hub.root}`, and at the site, "
        "stopped, `fedroute site join` with the new zip"
    )


def _made_up(config: "Config") -> "Federation | None":
    """A federation without rows, of the form that a table's rows may have; None where only the rows tell."""
    import torch

    from fedroute.data.federation import Federation
    from fedroute.data.spec import Table
    from fedroute.federation.form import hub_spec

    spec = hub_spec(config.federation)
    if not isinstance(spec, Table) or spec.image:
        return None
    numbers, none = spec.label_as == "number", torch.zeros(0, dtype=torch.int64)
    return Federation(
        name="made up", x=torch.zeros(0, 8), y=none.float() if numbers else none, clients=("a", "b"),
        train=(none, none), validation=(none, none), test=(none, none), labels=() if numbers else ("no", "yes"),
    )  # fmt: skip


def _put_together(config: "Config", federation: "Federation") -> None:
    from fedroute.federation.agreed import bound, task_of, terms

    try:
        task_of(config.model, federation, config.seed)
    except InputError as e:
        if "shape" in str(e):  # what the real rows have
            return
        raise
    bound(terms(config, federation.clients, "", ""), federation)
