"""Loading and writing the rules' state in Postgres, one message each.

New rows travel as arrays, one a column; the few that change, and what is asked for, as JSON.
"""

from __future__ import annotations

import json
from collections.abc import Iterable, Mapping, Sequence, Set
from operator import attrgetter
from typing import Any

from psycopg import AsyncConnection
from psycopg.pq.abc import PGresult

from custody_sync.errors import InvalidInput
from custody_sync.ledger.answers import mark_of
from custody_sync.ledger.chain import SECTIONS, Prepared, read_event
from custody_sync.ledger.drafts import Assert, Hold, Release, Remove, Repair
from custody_sync.ledger.postgres_sql import fill, statements
from custody_sync.ledger.postgres_wire import BEGIN, Call, Statement, array, hexed, numbered, quoted
from custody_sync.ledger.rows import (
    FACT,
    PLACEMENT,
    FactRow,
    RecordKey,
    fact_row,
    placement_row,
)
from custody_sync.ledger.rules import Group
from custody_sync.ledger.state import Needs, Position, State
from custody_sync.ledger.storage import Mark
from custody_sync.model import Standing, format_instant, read_instant

MAX_KEY_BYTES = 2600
"""Together; an entry of a Postgres index takes no more than a third of a page."""
_FACT_FIELDS = tuple(FactRow.__dataclass_fields__)
_fact_values = attrgetter(*_FACT_FIELDS)
_encode = json.JSONEncoder(ensure_ascii=False, check_circular=False).encode


def as_json(rows: Iterable[object]) -> str:
    """Return rows as the JSON text that a statement takes."""
    return _encode(list(rows))


def check_keys(prepared: Prepared) -> None:
    """Refuse names and ids that no index of Postgres takes; inside a group they would fail the others.

    Raises:
        InvalidInput: says which and how long it is.
    """
    draft = prepared.draft
    stores = [p.store for p in prepared.placements]
    if isinstance(draft, Remove | Repair) and draft.store is not None:
        stores.append(draft.store)
    named = [draft.event_id, draft.fact_id, *stores]
    if isinstance(draft, Assert):
        named += draft.fact.space, draft.fact.subject, draft.fact.supersedes or ""
    elif isinstance(draft, Hold | Release):
        named.append(draft.hold_id)
    # Nearly all are short, and then none needs a look by itself.
    if 4 * sum(map(len, named)) <= MAX_KEY_BYTES:
        return
    fact_id = check_key("fact_id", draft.fact_id)
    check_key("event_id", draft.event_id)
    for store in stores:
        check_key("store", store, fact_id)
    if isinstance(draft, Assert):
        check_key("space", draft.fact.space)
        check_key("subject", draft.fact.subject)
        check_key("supersedes", draft.fact.supersedes or "")
    elif isinstance(draft, Hold | Release):
        check_key("hold_id", draft.hold_id, fact_id)


def check_key(field: str, text: str, beside: str = "") -> str:
    """Return a text that fits into an index together with another one.

    Raises:
        InvalidInput: it does not.
    """
    if 4 * (len(text) + len(beside)) > MAX_KEY_BYTES:
        size = len(text.encode()) + len(beside.encode())
        if size > MAX_KEY_BYTES:
            problem = f"takes {size} bytes of an index, and a Postgres ledger has {MAX_KEY_BYTES}"
            raise InvalidInput(field=field, problem=problem)
    return text


class Rows:
    """The statements that load and write rows of one schema."""

    def __init__(self, schema: str) -> None:
        sql = statements("rows.sql", schema)
        self._sql = {name: Statement.read(name, prefilled(statement)) for name, statement in sql.items()}
        self.lock = self._sql["lock"].call({})
        self.prepare = "; ".join(statement.prepare() for statement in self._sql.values()).encode()

    def begin(self, drafts: Sequence[Prepared]) -> list[Call]:
        """Return what begins a transaction, takes the lock, and reads what a group depends on."""
        # In statements of their own, so that what is read is what the lock's last holder left.
        load, needed = self._loading(drafts)
        return [BEGIN, self.lock, load.call(needed)]

    def _loading(self, drafts: Sequence[Prepared]) -> tuple[Statement, Mapping[str, Any]]:
        needs = Needs.of(drafts)
        needed = {
            "ids": as_json(needs.fact_ids),
            "chained": as_json(needs.chained),
            "events": as_json(needs.event_ids),
            "keys": as_json(
                {"store": store, "external_id": external_id} for store, external_id in needs.keys
            ),
            # One link more than the group can retract, so that what stands below is always known.
            "size": needs.size + 1,
        }
        return self._sql["load_plain" if all(map(_is_plain, drafts)) else "load"], needed

    async def look(
        self, conn: AsyncConnection[Any], drafts: Sequence[Prepared]
    ) -> tuple[State, Position, Mark | None]:
        """Read what a group depends on without taking the lock, on any connection."""
        statement, values = self._loading(drafts)
        cursor = await conn.execute(statement.given.encode(), values)
        row = await cursor.fetchone()
        if row is None:
            raise ValueError("head")
        return read_loaded(row)

    def write(self, group: Group, loaded: Set[RecordKey]) -> list[Call]:
        """Return the statements that write what a group appended and changed, in their order.

        Args:
            group: what was decided.
            loaded: the placements that were there before.
        """
        state = group.state
        last = group.appended[-1]
        log: dict[str, str | int] = {
            "seq": last.seq,
            "tx_time": last.tx_time,
            "hash": last.hash,
            "count": len(group.appended),
            **columns_of(group),
            **_columns("b", 2, ((str(block), str(seq)) for block, seq in state.touched.items())),
        }
        # What was there and changed is written anew.
        dropped = [
            {"store": store, "external_id": external_id, "fact_id": fact_id}
            for store, external_id, fact_id in loaded
            if (store, external_id, fact_id) in state.dropped_placements
            or (store, external_id, fact_id) in state.changed_placements
        ]
        before = [self._sql["drop_placements"].call({"rows": as_json(dropped)})] if dropped else []
        return [*before, self._sql["write"].call(log), *self._changes(state), *self._erasures(group)]

    def _changes(self, state: State) -> Iterable[Call]:
        changes: list[tuple[str, list[Any]]] = [
            ("change_facts", [_fields(row) for row in state.changed_facts.values()]),
            ("settle_owed", [{"fact_id": f, "store": s} for f, s in state.owed_settled]),
            (
                "add_owed",
                [{"fact_id": f, "store": s, "due_at": due_at} for (f, s), due_at in state.owed_added.items()],
            ),
            ("release_holds", [{"fact_id": f, "hold_id": h} for f, h in state.holds_released]),
            (
                "add_holds",
                [{"fact_id": f, "hold_id": h, "seq": seq} for (f, h), seq in state.holds_added.items()],
            ),
        ]
        return [self._sql[name].call({"rows": as_json(rows)}) for name, rows in changes if rows]

    def _erasures(self, group: Group) -> Iterable[Call]:
        state = group.state
        what = {fact_id: identity for fact_id, (identity, _) in state.forgotten.items()}
        for fact_id, (identity, seq) in state.forgotten.items():
            yield self._sql["erase_content"].call({"fact_id": fact_id})
            if identity:
                yield self._sql["erase_identity"].call({"fact_id": fact_id, "seq": seq})
        for fact_id, seq in state.dereferenced.items():
            yield self._sql["erase_refs"].call({"fact_id": fact_id, "seq": seq})
            what[fact_id] = True
        for fact_id, identity in what.items():
            noted = {
                "fact_id": fact_id,
                "what": "identity" if identity else "content",
                "holder": str(group.position.seq),
                "since": format_instant(group.now),
            }
            yield self._sql["note_erasure"].call(noted)


def prefilled(statement: str, **parts: str) -> str:
    """Return a statement with its lists of columns put in, and other constant parts."""
    lists = {
        "fact": prefixed("f", FACT),
        "placement": prefixed("p", PLACEMENT),
        "fact_columns": FACT,
        "placement_columns": PLACEMENT,
    }
    return fill(statement, **lists, **parts).decode()


def columns_of(group: Group) -> dict[str, str | int]:
    """Return the rows that a group adds, as one array a column."""
    state = group.state
    return {
        **_columns("e", 6, _logged(group)),
        **_columns("s", 7, _sealed(group)),
        **_columns("c", 3, _claims(state)),
        **_columns("f", 19, _facts(group)),
        **_columns("p", 9, _placements(state)),
    }


def prefixed(table: str, columns: str) -> str:
    """Return a list of columns as those of a table's alias."""
    return ", ".join(f"{table}.{column}" for column in columns.split(", "))


def _fields(row: FactRow) -> dict[str, Any]:
    return dict(zip(_FACT_FIELDS, _fact_values(row), strict=True))


def _columns(table: str, count: int, rows: Iterable[tuple[str, ...]]) -> dict[str, str]:
    """Return rows as one array a column, under the names that the statement has for them."""
    columns: Iterable[Iterable[str]] = list(zip(*rows, strict=True)) or [()] * count
    return {f"{table}{n}": array(column) for n, column in enumerate(columns, start=1)}


def _logged(group: Group) -> Iterable[tuple[str, ...]]:
    for event in group.appended:
        draft = event.prepared.draft
        yield (
            str(event.seq), quoted(draft.event_id), quoted(draft.fact_id), quoted(event.tx_time),
            quoted(event.hash), quoted(event.body),
        )  # fmt: skip


def _sealed(group: Group) -> Iterable[tuple[str, ...]]:
    for event in group.appended:
        sections = event.prepared.sections
        if sections:
            row = [str(event.seq)]
            for name in SECTIONS:
                section = sections.get(name)
                row += ("NULL", "NULL") if section is None else (quoted(section.body), hexed(section.salt))
            yield tuple(row)


def _claims(state: State) -> Iterable[tuple[str, ...]]:
    for fact_id, (standing, seq) in state.new_claims.items():
        yield quoted(fact_id), quoted(standing.value), str(seq)


def _facts(group: Group) -> Iterable[tuple[str, ...]]:
    times = {event.seq: event.tx_time for event in group.appended}
    for f in group.state.new_facts.values():
        yield (
            quoted(f.fact_id), str(f.seq), quoted(f.root), quoted(f.supersedes), quoted(f.space),
            quoted(f.subject), quoted(f.predicate), quoted(f.provenance), quoted(f.valid_from),
            quoted(f.valid_to), quoted(f.actor), quoted(f.receipt_id), numbered(f.effect_seq),
            numbered(f.retract_seq), numbered(f.forget_seq), str(f.live), str(f.identity_gone),
            quoted(f.covered_from), quoted(times[f.seq]),
        )  # fmt: skip


def _placements(state: State) -> Iterable[tuple[str, ...]]:
    for p in state.changed_placements.values():
        yield (
            quoted(p.store), quoted(p.external_id), quoted(p.fact_id), quoted(p.scope), quoted(p.stored_at),
            quoted(p.until), quoted(p.state.value), quoted(p.outcome), str(p.id),
        )  # fmt: skip


def read_row(result: PGresult) -> list[Any]:
    """Return the one row that `load` finds, out of the JSON that it is made of.

    Raises:
        ValueError: there is none.
    """
    if result.ntuples != 1:
        raise ValueError("head")
    found = [result.get_value(0, column) for column in range(result.nfields)]
    return [None if value is None else json.loads(value) for value in found]


def read_loaded(row: Sequence[Any]) -> tuple[State, Position, Mark | None]:
    """Return the state, the head and the mark that `load` found."""
    at, events, claims, facts, links, placements, owed, holds, mark = row
    state = State()
    for event_id, body, digest, *sections in events or ():
        state.events[event_id] = read_event(body, digest, dict(zip(SECTIONS, sections, strict=True)))
    for fact_id, standing in claims or ():
        state.claims[fact_id] = Standing(standing)
    for fact in facts or ():
        state.add_fact(fact_row(tuple(fact)))
    linked = set(links or ())
    for fact in sorted(state.facts.values(), key=lambda fact: fact.effect_seq or 0):
        if fact.seq in linked:
            state.chains.setdefault(fact.root, []).append(fact)
    for placement in placements or ():
        state.add_placement(placement_row(tuple(placement)))
    for fact_id, store in owed or ():
        state.owed.setdefault(fact_id, set()).add(store)
    for fact_id, hold_id in holds or ():
        state.holds.setdefault(fact_id, set()).add(hold_id)
    return state, Position(at[0], read_instant(at[1]), at[2]), None if mark is None else mark_of(mark)


def _is_plain(prepared: Prepared) -> bool:
    draft = prepared.draft
    return isinstance(draft, Repair) or (isinstance(draft, Assert) and draft.fact.supersedes is None)
