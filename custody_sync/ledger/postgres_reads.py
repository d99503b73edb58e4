"""The questions a ledger answers, in Postgres; each is one statement, and so of one moment."""

from __future__ import annotations

import re
from collections.abc import Mapping, Sequence
from datetime import UTC, datetime
from typing import Any

from psycopg import AsyncConnection

from custody_sync.canonical import is_text
from custody_sync.ledger import rows as places
from custody_sync.ledger.answers import (
    ANSWERED,
    NO_EVENT,
    Row,
    account_of,
    compared_of,
    event_at,
    exported,
    fact_of,
    head_of,
    held_of,
    placement_of,
    unaccounted_of,
    waiting_of,
)
from custody_sync.ledger.postgres_rows import as_json, prefixed
from custody_sync.ledger.postgres_schema import steps
from custody_sync.ledger.postgres_sql import fill, read_script, statements
from custody_sync.ledger.rows import FACT, PLACEMENT, Derived, fact_row, placement_row
from custody_sync.ledger.storage import Account, AsOf, Compared, Held, Unaccounted, Waiting
from custody_sync.ledger.whereabouts import Whereabouts
from custody_sync.model import (
    Event,
    Fact,
    Head,
    Page,
    Placement,
    PlacementState,
    Standing,
    format_instant,
)

_FACT_COLUMNS = ANSWERED.removesuffix(", s.content")
_PLACEMENT = "p.store, p.external_id, p.fact_id, p.scope, p.stored_at, p.state, p.outcome"
_HEAD = 3
_MADE = re.compile(r"^CREATE (?:UNIQUE )?(TABLE|INDEX) (?:\w+\.)?(\w+)", re.MULTILINE)
_TABLES = ("events", "claims", "facts", "placements", "owed", "holds")


class Reads:
    """The questions to one schema."""

    def __init__(self, schema: str) -> None:
        self._schema = schema
        parts = {
            "schema": schema,
            "fact": ANSWERED,
            "columns": _FACT_COLUMNS,
            "placement": _PLACEMENT,
            "fact_row": prefixed("f", FACT),
            "placement_row": prefixed("p", PLACEMENT),
        }
        sql = statements("reads.sql", schema)
        self._sql = {name: fill(statement, **parts).decode() for name, statement in sql.items()}

    async def _rows(
        self, conn: AsyncConnection[Any], name: str, parameters: Mapping[str, Any], **parts: str
    ) -> list[tuple[Any, ...]]:
        cursor = await conn.execute(fill(self._sql[name], **parts), parameters)
        return await cursor.fetchall()

    async def whereabouts(self, conn: AsyncConnection[Any]) -> Whereabouts:
        """Return which cluster, database and schema it is in, and the server's time.

        Where the cluster may not be asked for its number, the database's stands for it.
        """
        ((allowed, database, number, schema, now),) = await self._rows(conn, "whereabouts", {})
        cluster = f"database {number}"
        if allowed:
            ((system,),) = await self._rows(conn, "cluster", {})
            cluster = f"cluster {system}"
        return Whereabouts(f"{cluster}, database {database}, schema {schema}", now.astimezone(UTC))

    async def head(self, conn: AsyncConnection[Any]) -> Head:
        """Return the committed head."""
        (row,) = await self._rows(conn, "head", {})
        return head_of(row)

    async def as_of(self, conn: AsyncConnection[Any], question: AsOf, now: datetime) -> Page[Fact]:
        """Return a page of the facts believed at the asked instants."""
        filters = f" AND f.seq > %(after)s{_narrowed(question.space, question.subject)}"
        if question.predicate is not None:
            filters += " AND f.predicate = %(predicate)s"
        sets = self._sets(question)
        parameters = {
            "now": format_instant(now),
            "valid_at": None if question.valid_at is None else format_instant(question.valid_at),
            "tx_at": None if question.tx_at is None else format_instant(question.tx_at),
            "after": question.after,
            "space": question.space,
            "subject": question.subject,
            "predicate": question.predicate,
            "limit": question.limit + 1,
        }
        at = self._sql["head" if question.tx_at is None else "at_instant"]
        parts = {"at": at, "sets": sets, "filters": filters}
        head, rows = _split(await self._rows(conn, "as_of", parameters, **parts))
        head = head if head.seq else NO_EVENT
        facts = [fact_of(row, head.seq) for row in rows[: question.limit]]
        return Page(facts, head=head, next=facts[-1].seq if len(rows) > question.limit else None)

    def _sets(self, question: AsOf) -> str:
        """Return selects that no fact is in two of; whoever is believed is in one of them."""
        claimed = f" OR ({self._sql['claimed']})" if question.include_claimed else ""
        condition = f"(({self._sql['believed']}){claimed})"
        anyone = self._sql["any"].replace("{condition}", condition)
        unchanged = self._unchanged("live", "not_yet_covered", *(["waiting"] * question.include_claimed))
        if question.tx_at is None and question.valid_at is None:
            return _together(unchanged)
        if question.valid_at is not None or question.space is not None or question.subject is not None:
            # Of a time that may lie before the head, any fact may be believed; of one subject there are few.
            return _together([anyone])
        here = " AND f.seq BETWEEN r.first AND r.last"
        sets = [anyone.replace("{filters}", f"{{filters}}{here} AND r.changed")]
        sets += [select.replace("{filters}", f"{{filters}}{here} AND NOT r.changed") for select in unchanged]
        bits = str(places.BLOCK_BITS)
        return self._sql["past"].replace("{bits}", bits).replace("{sets}", _together(sets))

    def _unchanged(self, *names: str) -> list[str]:
        """Return selects of who is believed where nothing has changed since."""
        return [self._sql[name].replace("{believed}", self._sql["believed"]) for name in names]

    async def get(self, conn: AsyncConnection[Any], fact_id: str) -> Fact | None:
        """Return one fact whatever its state."""
        rows = await self._rows(conn, "get", {"fact_id": fact_id})
        return fact_of(rows[0], rows[0][12] or 0) if rows else None

    async def facts(self, conn: AsyncConnection[Any], ids: Sequence[str]) -> dict[str, Fact | None]:
        """Return what there is of each id asked for."""
        found: dict[str, Fact | None] = dict.fromkeys(ids)
        for row in await self._rows(conn, "facts", {"ids": _asked(ids)}):
            found[row[1]] = fact_of(row, row[12] or 0)
        return found

    async def history(self, conn: AsyncConnection[Any], fact_id: str, limit: int, after: int) -> Page[Event]:
        """Return a page of one fact's events."""
        asked = {"fact_id": fact_id, "after": after, "limit": limit + 1}
        head, rows = _split(await self._rows(conn, "history", asked))
        found = [event_at(row[1:]) for row in rows[:limit]]
        return Page(found, head=head, next=found[-1].seq if len(rows) > limit else None)

    async def events(self, conn: AsyncConnection[Any], limit: int, after: int) -> list[dict[str, Any]]:
        """Return stored events with what is left of their sections, ready to be written as JSON lines."""
        return [exported(row) for row in await self._rows(conn, "events", {"after": after, "limit": limit})]

    async def spaces(self, conn: AsyncConnection[Any], limit: int, after: str) -> list[str]:
        """Return each space once, jumping from one to the next along the index."""
        asked = {"after": after, "limit": None if limit < 0 else limit}
        return [space for (space,) in await self._rows(conn, "spaces", asked)]

    async def accounts(
        self, conn: AsyncConnection[Any], space: str | None, subject: str | None, limit: int, after: int
    ) -> Page[Account]:
        """Return a page of what there is on facts, without their values, in the order they were learned."""
        asked = {"space": space, "subject": subject, "after": after, "limit": limit + 1}
        where = f"f.seq > %(after)s{_narrowed(space, subject)}"
        head, rows = _split(await self._rows(conn, "accounts", asked, where=where))
        found = [account_of(row[:-1], row[-1]) for row in rows[:limit]]
        return Page(found, head=head, next=found[-1].seq if len(rows) > limit else None)

    async def known(self, conn: AsyncConnection[Any], ids: Sequence[str]) -> dict[str, Standing]:
        """Return the standing of every id asked for."""
        rows = await self._rows(conn, "known", {"ids": _asked(ids)})
        found = {fact_id: Standing(standing) for fact_id, standing in rows}
        return {fact_id: found.get(fact_id, Standing.UNKNOWN) for fact_id in ids}

    async def placements(self, conn: AsyncConnection[Any], fact_id: str) -> list[Placement]:
        """Return a fact's placements in the order they were made."""
        return [placement_of(row) for row in await self._rows(conn, "placements", {"fact_id": fact_id})]

    async def placements_of(
        self, conn: AsyncConnection[Any], ids: Sequence[str]
    ) -> dict[str, list[Placement]]:
        """Return the placements of each id asked for, in the order they were made."""
        found: dict[str, list[Placement]] = {fact_id: [] for fact_id in ids}
        for row in await self._rows(conn, "placements_of", {"ids": _asked(ids)}):
            found[row[2]].append(placement_of(row))
        return found

    async def placements_in(
        self, conn: AsyncConnection[Any], states: Sequence[PlacementState], limit: int, after: int
    ) -> Page[Placement]:
        """Return a page of placements by state."""
        # Literal states let Postgres use the partial indexes; they come from the enum.
        wanted = ", ".join(f"'{PlacementState(state).value}'" for state in states)
        asked = {"after": after, "limit": limit + 1}
        return _page(await self._rows(conn, "placements_in", asked, states=wanted), limit)

    async def ended(
        self, conn: AsyncConnection[Any], store: str, limit: int, after: int, now: datetime
    ) -> Page[Placement]:
        """Return a page of a store's current placements of facts whose validity is over."""
        asked = {"store": store, "now": format_instant(now), "after": after, "limit": limit + 1}
        return _page(await self._rows(conn, "ended", asked), limit)

    async def owed(
        self,
        conn: AsyncConnection[Any],
        fact_id: str | None,
        limit: int,
        after: tuple[str, str],
        now: datetime,
    ) -> list[tuple[str, str]]:
        """Return (fact id, store) pairs where a believed fact is missing, in order."""
        asked = {
            "fact_id": fact_id,
            "after_fact": after[0],
            "after_store": after[1],
            "now": format_instant(now),
            "limit": limit,
        }
        where = "" if fact_id is None else "o.fact_id = %(fact_id)s AND"
        return [(row[0], row[1]) for row in await self._rows(conn, "owed", asked, where=where)]

    async def waiting(
        self, conn: AsyncConnection[Any], limit: int, after: int, now: datetime
    ) -> Page[Waiting]:
        """Return a page of what is owed once it begins: so many facts, with all stores of each."""
        asked = {"now": format_instant(now), "after": after, "limit": limit + 1}
        head, rows = _split(await self._rows(conn, "waiting_owed", asked))
        return waiting_of(rows, limit, head)

    async def unaccounted(
        self, conn: AsyncConnection[Any], store: str, pairs: Mapping[str, str], keep: bool, now: datetime
    ) -> list[Unaccounted]:
        """Return listed entries that are no current placements.

        A store may list ids that no ledger can hold, such as one with a NUL character. An empty id
        stands for them, which nothing has; they come last.
        """
        listed = sorted(pairs, key=is_text, reverse=True)
        entries = [
            {"place": place, "external_id": _askable(external_id), "fact_id": _askable(pairs[external_id])}
            for place, external_id in enumerate(listed)
        ]
        asked = {"entries": as_json(entries), "store": store, "keep": keep, "now": format_instant(now)}
        return [
            unaccounted_of(listed[place], pairs[listed[place]], *found)
            for place, *found in await self._rows(conn, "unaccounted", asked)
        ]

    async def compare(
        self, conn: AsyncConnection[Any], store: str, listed: Mapping[str, str], keep: bool, now: datetime
    ) -> list[Compared]:
        """Say of every listed entry what there is on it, in the order given."""
        entries = [
            {
                "place": place,
                "external_id": _askable(external_id),
                "fact_id": fact_id if is_text(fact_id) else None,
            }
            for place, (external_id, fact_id) in enumerate(listed.items())
        ]
        asked = {"entries": as_json(entries), "store": store, "keep": keep, "now": format_instant(now)}
        rows = await self._rows(conn, "compare", asked)
        return [compared_of(external_id, row) for external_id, row in zip(listed, rows, strict=True)]

    async def held(
        self, conn: AsyncConnection[Any], store: str, limit: int, after: int, now: datetime
    ) -> Page[Held]:
        """Return a page of a store's current placements in order of place."""
        asked = {"store": store, "now": format_instant(now), "after": after, "limit": limit + 1}
        head, rows = _split(await self._rows(conn, "held", asked))
        found = [held_of(row) for row in rows[:limit]]
        return Page(found, head=head, next=found[-1].place if len(rows) > limit else None)

    async def lacking(
        self, conn: AsyncConnection[Any], store: str, limit: int, after: int, now: datetime
    ) -> Page[str]:
        """Return a page of the facts believed now that a store has no current placement of."""
        asked = {"store": store, "now": format_instant(now), "after": after, "limit": limit + 1}
        selects = self._unchanged("live", "not_yet_covered")
        sets = _together(selects).replace("{filters}", f" {self._sql['no_placement']}")
        head, rows = _split(await self._rows(conn, "lacking", asked, sets=sets))
        found = rows[:limit]
        return Page(
            [fact_id for _, fact_id in found], head=head, next=found[-1][0] if len(rows) > limit else None
        )

    async def derived(self, conn: AsyncConnection[Any], limit: int, after: str) -> tuple[Head, list[Derived]]:
        """Return what is kept on the fact ids after a given one, and the head of the same moment.

        Raises:
            ValueError: the head counts other events than it has.
        """
        beyond = ">" if after else ">="
        ids = [fill(self._sql["ids"], table=table, beyond=beyond).decode() for table in _TABLES]
        asked = {"after": after, "limit": limit}
        rows = await self._rows(conn, "derived", asked, ids=" UNION ".join(ids))
        at, count = head_of(rows[0][:_HEAD]), rows[0][_HEAD]
        if count != at.seq:
            raise ValueError("count")
        return at, [_derived(row[_HEAD + 1 :]) for row in rows if row[_HEAD + 1] is not None]

    async def blocks(self, conn: AsyncConnection[Any]) -> tuple[Head, dict[int, int]]:
        """Return by block of the log the last event that changed one of its facts."""
        at, rows = _split(await self._rows(conn, "blocks", {}))
        return at, {block: changed for block, changed in rows}

    async def structure(self, conn: AsyncConnection[Any]) -> list[str]:
        """Return what of the schema is not as this version makes it, one sentence each."""
        made = [part for script in steps() for part in _MADE.findall(read_script(script, self._schema))]
        asked = {
            "schema": self._schema,
            "tables": as_json(name for kind, name in made if kind == "TABLE"),
            "indexes": as_json(name for kind, name in made if kind == "INDEX"),
        }
        return [said for (said,) in await self._rows(conn, "structure", asked)]


def _derived(row: Row) -> Derived:
    fact_id, events, claim, fact, placements, owed, holds = row
    return Derived(
        fact_id=fact_id,
        events=tuple((seq, event_id, tx_time) for seq, event_id, tx_time in events or ()),
        claim=None if claim is None else (claim[0], claim[1]),
        fact=None if fact is None else fact_row(tuple(fact[:-1])),
        learned=None if fact is None else fact[-1],
        placements=tuple(placement_row(tuple(placement)) for placement in placements or ()),
        owed=tuple((store, due_at) for store, due_at in owed or ()),
        holds=tuple((hold_id, seq) for hold_id, seq in holds or ()),
    )


def _asked(ids: Sequence[str]) -> str:
    """Return ids as a question takes them: each once, but for those that no ledger can hold."""
    return as_json(dict.fromkeys(filter(is_text, ids)))


def _askable(text: str) -> str:
    return text if is_text(text) else ""


def _together(selects: Sequence[str]) -> str:
    return " UNION ALL ".join(f"({select})" for select in selects)


def _narrowed(space: str | None, subject: str | None) -> str:
    where = ""
    if space is not None:
        # The subject's index is by far the narrower of the two, and this comparison uses none.
        operator = "=" if subject is None else "IS NOT DISTINCT FROM"
        where += f" AND f.space {operator} %(space)s"
    return where if subject is None else f"{where} AND f.subject = %(subject)s"


def _split(rows: Sequence[Row]) -> tuple[Head, list[Row]]:
    """Return the head that stands in every row, and the rows without it; the first may hold nothing else."""
    head = head_of(rows[0][:_HEAD])
    return head, [row[_HEAD:] for row in rows if row[_HEAD] is not None]


def _page(rows: Sequence[Row], limit: int) -> Page[Placement]:
    head, found = _split(rows)
    shown = found[:limit]
    return Page(
        [placement_of(row[:-1]) for row in shown],
        head=head,
        next=shown[-1][-1] if len(found) > limit else None,
    )
