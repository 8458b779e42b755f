"""What each visitor chooses: language, theme, density, time zone. Kept in cookies of the browser."""

from __future__ import annotations

from typing import TYPE_CHECKING

from rocketline.console.access import Role
from rocketline.console.endpoints import Input, View, reads

if TYPE_CHECKING:
    from rocketline.console.visit import Visit


class SettingsView(View, kw_only=True):
    language: str
    theme: str
    density: str
    zone: str


@reads("/settings", Role.VIEWER, "settings.html", in_cluster=False, in_api=False)
async def settings(visit: Visit, wanted: Input) -> SettingsView:
    """The form of the choices."""
    look = visit.look
    return SettingsView(language=look.language, theme=look.theme, density=look.density, zone=look.zone)
