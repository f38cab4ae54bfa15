"""A page from its template: one self-contained file, whose only script is the one that its policy names."""

import base64
import hashlib
from typing import Any

from jinja2 import Environment, PackageLoader, StrictUndefined
from markupsafe import Markup


def render(template: str, content: dict[str, Any]) -> str:
    """The page that a template of this folder makes of plain values, with style, script and the script's digest. A
    value that the template names and `content` lacks is an error; text is escaped."""
    env = Environment(
        loader=PackageLoader("fedroute", "report"),
        autoescape=True,
        trim_blocks=True,
        lstrip_blocks=True,
        undefined=StrictUndefined,
    )
    style, script = (Markup(env.loader.get_source(env, name)[0]) for name in ("report.css", "report.js"))  # type: ignore[union-attr]
    digest = base64.b64encode(hashlib.sha256(script.encode()).digest()).decode()
    return env.get_template(template).render(content | {"style": style, "script": script, "digest": digest})
