"""Pages: templates with one visitor's look. All values are escaped; templates have no text of their own."""

from __future__ import annotations

import re
import secrets
from collections.abc import Callable
from functools import cache
from typing import Any
from urllib.parse import quote, urlencode

import jinja2
from markupsafe import Markup, escape

from rocketline.console.look import DENSITIES, THEMES, zone_names
from rocketline.console.pages import NAVIGATION
from rocketline.console.problems import ProblemView
from rocketline.console.static_files import static_hash
from rocketline.console.texts import LANGUAGES
from rocketline.console.visit import Visit
from rocketline.protocol.versions import version_name


@cache
def environment() -> jinja2.Environment:
    loader = jinja2.PackageLoader("rocketline.console", "templates")
    made = jinja2.Environment(
        loader=loader, autoescape=True, undefined=jinja2.StrictUndefined, trim_blocks=True, lstrip_blocks=True
    )
    made.filters["path"] = lambda text: quote(str(text), safe="")
    made.globals.update(languages=LANGUAGES, themes=THEMES, densities=DENSITIES, zone_names=zone_names)
    return made


def client_version(number: int) -> str:
    """
    >>> client_version(493)
    'V5_4_0'
    """
    return version_name(number).upper()


TONE = "@"
"""At the end of a key: the class of that cell."""


class Cells:
    """Numbers of a page that change in place while it is open: their texts by key."""

    def __init__(self) -> None:
        self.texts: dict[str, str] = {}

    def __call__(self, key: str, value: object, tone: str = "") -> Markup:
        """`tone` is how it looks: a class that changes with the text."""
        shown = escape(value)
        self.texts[key] = _plain(shown)
        if not tone:
            return Markup('<span data-cell="{}">{}</span>').format(key, shown)
        self.texts[key + TONE] = tone
        return Markup('<span class="{}" data-cell="{}">{}</span>').format(tone, key, shown)


def _plain(shown: Markup) -> str:
    return str(shown.striptags()) if "<" in shown else str(shown.unescape())


class Page:
    """One page for one visit."""

    def __init__(self, visit: Visit, path: str, query: list[tuple[str, str]]) -> None:
        self.visit = visit
        self.path = path
        self.query = query
        self.cells = Cells()

    def html(
        self,
        template: str,
        view: Any = None,
        *,
        given: dict[str, str] | None = None,
        problem: ProblemView | None = None,
    ) -> str:
        """Draw a template. `given` and `problem` show a form again that could not be used."""
        look = self.visit.look
        context = {
            "visit": self.visit, "view": view, "look": look, "t": look.t, "cell": self.cells, "page": self,
            "number": look.number, "rate": look.rate, "size": look.size, "took": look.took, "when": look.when,
            "ago": look.ago, "percent": look.percent, "unknown": look.unknown, "term": look.term,
            "said": look.said, "client_version": client_version, "clock": look.clock,
            "url": self.visit.link, "root": self.visit.desk.config.root_path, "here": self.here,
            "static": f"{self.visit.desk.config.root_path}/static/{static_hash()}", "navigation": NAVIGATION,
            "clusters": list(self.visit.desk.places), "given": given or {}, "problem": problem, "now_ms": self.visit.now_ms,
            "form_token": self._form_token(), "new_key": secrets.token_hex(16), "pattern": re.escape,
            "has_store": self.visit.desk.config.store is not None, "has_runs": self.visit.desk.config.runs is not None,
            "is_sampled": self.visit.cluster in self.visit.desk.samplers,
        }  # fmt: skip
        return environment().get_template(template).render(context)

    def _form_token(self) -> Callable[[], str]:
        session = self.visit.session
        return session.form_token if session is not None else lambda: ""

    def here(self, **changed: object) -> str:
        """The URL of this page with other parameters; None takes one away."""
        return self.visit.desk.config.root_path + self.place(**changed)

    def place(self, **changed: object) -> str:
        """As `here`, without the path under which a proxy serves the console."""
        kept = [(name, value) for name, value in self.query if name not in changed]
        more = [(name, str(value)) for name, value in changed.items() if value is not None]
        query = urlencode(kept + more)
        return quote(self.path) + (f"?{query}" if query else "")

    def asked(self, name: str) -> str:
        """A parameter of this page's URL."""
        return next((value for key, value in self.query if key == name), "")
