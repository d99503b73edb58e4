"""Whether a connection shows all of the table that was written to: what it hides proves no absence."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from typing import TYPE_CHECKING, Any, Literal, TypeAlias

from custody_sync.adapters._pgvector_catalog import Relation
from custody_sync.adapters._pgvector_layout import yes
from custody_sync.adapters._scopes import LooseNotes
from custody_sync.errors import InvalidInput, StoreRefused
from custody_sync.model import Entry
from custody_sync.ports import ANOTHER_LEDGER, NO_LABEL, Notebook

if TYPE_CHECKING:
    from psycopg import AsyncCursor

Doubt: TypeAlias = Literal[
    "row_level_security", "another_database", "id_of_another_row", "LabelOfAnotherLedger", "LabelGone"
]
"""Why an answer proves nothing, in a word that results and errors may say."""
Seen: TypeAlias = tuple[bool, str]
"""Whether rows may be hidden from a connection, and where it leads."""

_MAY_ASK = b"select has_function_privilege('pg_control_system()', 'execute')"
_IS_THERE = b"select to_regclass(%s) is not null"
# For a role that a policy does not bind (a superuser, BYPASSRLS, an owner without FORCE) this is false.
_LOOK = """
    select row_security_active(%(name)s::text), concat_ws('/', {cluster},
        (select oid from pg_database where datname = current_database()), to_regclass(%(name)s)::oid)"""
_BESIDE = b"""
    with seen(hidden, place) as materialized (%b)
    select seen.*, found.* from seen left join (select true, asked.* from (%b) asked) found on true"""
_CLUSTER, _UNTOLD = "(select system_identifier from pg_control_system())", "-"


class Witness:
    """Know the table's place again, and say what keeps a connection from seeing it whole.

    Args:
        name: The store's name, for errors.
        relation: The table.
        place: The caller's word for where it stands; a new word is a new place.
    """

    def __init__(self, name: str, relation: Relation, place: str) -> None:
        if not isinstance(place, str):
            raise InvalidInput(field="place", problem="must be a text")
        self.notes: Notebook = LooseNotes()
        self._name = name
        self._named = {"name": relation.quoted}
        self._key = f"place {place}".rstrip()
        self._look = b""
        self._here = ""

    async def before_set_up(self, cursor: AsyncCursor[Any], relation: Relation) -> None:
        """Refuse to make a table where there is none, when one was written to somewhere."""
        noted = await self.notes.get(self._key)
        if noted is not None and not await yes(cursor, _IS_THERE, (relation.quoted,)):
            raise self._elsewhere("set_up")
        cluster = _CLUSTER if await yes(cursor, _MAY_ASK) else f"'{_UNTOLD}'"
        self._look = _LOOK.format(cluster=cluster).encode()

    async def after_set_up(self, cursor: AsyncCursor[Any]) -> None:
        """Learn where the table stands."""
        _, self._here = await self._seen(cursor)

    async def note(self, operation: str) -> None:
        """Note before a put where the table stands.

        Raises:
            StoreRefused: another place is noted.
        """
        if not _is_same(await self.notes.claim(self._key, self._here), self._here):
            raise self._elsewhere(operation)

    async def doubt(self, cursor: AsyncCursor[Any]) -> Doubt | None:
        """Return why what this connection does not show may be there all the same."""
        return await self.doubt_of(await self._seen(cursor))

    async def doubt_of(self, seen: Seen) -> Doubt | None:
        """Return the same of what was seen."""
        is_filtered, here = seen
        if is_filtered:
            return "row_level_security"
        noted = await self.notes.get(self._key)
        return None if noted is None or _is_same(noted, here) else "another_database"

    async def beside(
        self, cursor: AsyncCursor[Any], statement: bytes, asked: Mapping[str, Any]
    ) -> tuple[list[tuple[Any, ...]], Seen]:
        """Ask for rows, in no order, and look at the connection in the same statement."""
        await cursor.execute(_BESIDE % (self._look, statement), {**asked, **self._named})
        rows = await cursor.fetchall()
        # Where there are no rows the look is one by itself.
        return [row[3:] for row in rows if row[2]], (rows[0][0], rows[0][1])

    async def check(self, cursor: AsyncCursor[Any], operation: str) -> None:
        """Refuse an answer that may leave something out."""
        await self.check_seen(await self._seen(cursor), operation)

    async def check_seen(self, seen: Seen, operation: str) -> None:
        """Refuse one that came with what was seen."""
        doubt = await self.doubt_of(seen)
        if doubt is not None:
            raise StoreRefused(store=self._name, operation=operation, cause=doubt)

    async def _seen(self, cursor: AsyncCursor[Any]) -> Seen:
        await cursor.execute(self._look, self._named)
        row = await cursor.fetchone()
        return (True, "") if row is None else (row[0], row[1])

    def _elsewhere(self, operation: str) -> StoreRefused:
        return StoreRefused(store=self._name, operation=operation, cause="another_database")


def judged(entry: Entry, rows: Iterable[tuple[Any, ...]]) -> Literal["gone", "held"] | Doubt:
    """Say what rows under an entry's id are to it.

    A row with another label under an id that the database gave is somebody else's since the ids began
    anew, or ours with its label taken off: only the text tells these apart.

    Args:
        entry: What is asked about.
        rows: Ids, whether the row has our label, the label's fact id and its ledger id.
    """
    found: Literal["gone", "held"] | Doubt = "gone"
    for key, is_ours, fact_id, ledger_id in rows:
        if key != entry.external_id:
            continue
        is_theirs = is_ours and entry.ledger_id is not None and ledger_id != entry.ledger_id
        if entry.fact_id is None or (is_ours and not is_theirs and fact_id == entry.fact_id):
            return "held"
        unlike: Doubt = "id_of_another_row" if is_ours else NO_LABEL
        found = ANOTHER_LEDGER if is_theirs else unlike
    return found


def _is_same(noted: str, here: str) -> bool:
    """Compare places part by part; who may not ask for the cluster compares the rest."""
    pairs = zip(noted.split("/"), here.split("/"), strict=False)
    return all(one == other or _UNTOLD in (one, other) for one, other in pairs)
