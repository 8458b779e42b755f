"""One request of a person: who it is, which cluster it is about, and how answers are shown."""

from __future__ import annotations

from collections.abc import Awaitable, Callable
from dataclasses import dataclass
from typing import TYPE_CHECKING, TypeVar

from rocketline.admin import Admin
from rocketline.clock import SYSTEM_CLOCK
from rocketline.console.access import Person, Role
from rocketline.console.look import Look
from rocketline.console.problems import Problem
from rocketline.console.sessions import Session

if TYPE_CHECKING:
    from rocketline.console.desk import Desk

T = TypeVar("T")


@dataclass
class Visit:
    desk: Desk
    person: Person
    look: Look
    address: str = ""
    """Where the request came from."""
    cluster: str = ""
    session: Session | None = None
    resume_at: str = ""
    """The id of the last event that a browser has of a stream."""
    is_page: bool = True
    is_refresh: bool = False
    """Only the numbers of a page that is open are asked for again."""

    @property
    def admin(self) -> Admin:
        """Requests to this visit's cluster, signed by this person's account if it logged in with one."""
        return self.desk.admin_of(self.cluster, self.person)

    async def kept(self, ask: Callable[[Admin], Awaitable[T]]) -> T:
        """The answer to a question about the whole cluster; one that is a moment old is used again, by all viewers."""
        account = self.person.key if self.person.account is not None else ""
        return await self.desk.kept((self.cluster, account, ask.__name__), lambda: ask(self.admin))

    def changed(self) -> None:
        """Something was changed: nothing that is known of this cluster is used again."""
        self.admin.forget()
        self.desk.forget_kept(self.cluster)

    @property
    def sees_audit(self) -> bool:
        return self.person.may(Role.OPERATOR) and self.person.sees_console

    @property
    def stays(self) -> bool:
        """Whether what goes on for this visit may go on."""
        return self.desk.stays(self.person, self.session)

    @property
    def now_ms(self) -> int:
        return SYSTEM_CLOCK.now_ms()

    def may(self, word: str) -> bool:
        """Whether a form or link for this role is shown."""
        role = Role.of(word)
        return self.person.may(role) and not (role > Role.READER and self.desk.config.read_only)

    def link(self, path: str = "/") -> str:
        """The URL of a page of this cluster."""
        return f"{self.desk.config.root_path}/c/{self.cluster}{path}"

    def confirm(self, given: str, name: str) -> None:
        """Problem unless the name was typed."""
        if given != name:
            raise Problem(422, "not_confirmed", name)
