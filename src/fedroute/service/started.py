"""The application that `fedroute serve` serves."""

from collections.abc import Sequence
from pathlib import Path

from fastapi import FastAPI

from fedroute.errors import InputError
from fedroute.options import nearest
from fedroute.router.router import Router
from fedroute.service.answers import Own
from fedroute.service.gateway import make_app, make_site_app
from fedroute.service.serving import Service, image_size
from fedroute.service.settings import Settings


def app_of_run(
    folder: Path, settings: Settings, *, client: str | None = None, away: Sequence[str] = ()
) -> tuple[FastAPI, str]:
    """(application, what it serves, in words). client: that client's own model alone; away: clients not to be asked.

    Raises InputError where the folder has no router, or no such client."""
    router = Router.load(folder)
    for c in settings.addresses:
        if c not in router.clients:
            raise InputError(f"--site {c}=...: no such client; {nearest(c, router.clients)}")
    if client is not None:
        own = Own.of(router, client, size=image_size(folder))
        return make_site_app(own, settings), f"{client}'s own model of {folder}"
    service = Service.of_run(folder, away=away, router=router)
    if not {*router.clients} - {*away}:
        raise InputError("--away: every client is away, and nobody would be left to answer")
    return make_app(service, settings), f"{folder} ({len(router.clients)} clients, rule {router.rule})"
