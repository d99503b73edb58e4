"""Loading and writing the rules' state in SQLite, inside the writer's transaction."""

from __future__ import annotations

import json
import sqlite3
from collections.abc import Iterable, Sequence
from datetime import datetime
from functools import cache
from itertools import chain

from custody_sync.ledger.chain import SECTIONS, read_event
from custody_sync.ledger.replaying import Replay, Stored, prepare_replay
from custody_sync.ledger.rows import FACT, PLACEMENT, FactRow, fact_row, placement_row
from custody_sync.ledger.rules import Group
from custody_sync.ledger.state import Needs, Position, State
from custody_sync.model import Standing, format_instant, read_instant

UPTO, BEYOND = "AND effect_seq <= ?", "AND effect_seq > ?"
_LINKS = f"SELECT {FACT} FROM facts WHERE root = ? AND effect_seq IS NOT NULL AND retract_seq IS NULL"
_GIVEN = "(SELECT value FROM json_each(?))"
_PLACEMENT = ", ".join(f"p.{column}" for column in PLACEMENT.split(", "))
_encode = json.JSONEncoder(check_circular=False).encode
_AT_ONCE = (32, 16, 8, 4, 3, 2, 1)
"""Rows of one INSERT; few sizes keep its statements cached, and 32 rows stay under 999 parameters."""
_END = "SELECT seq, tx_time, hash, EXISTS (SELECT 1 FROM notes WHERE topic = 'moved') FROM head"
_HOLDS = f"""
SELECT EXISTS (SELECT 1 FROM events WHERE event_id IN {_GIVEN}),
    EXISTS (SELECT 1 FROM claims WHERE fact_id IN {_GIVEN}),
    EXISTS (SELECT 1 FROM json_each(?) k CROSS JOIN placements p
        WHERE p.store = json_extract(k.value, '$[0]') AND p.external_id = json_extract(k.value, '$[1]'))
"""


def position(conn: sqlite3.Connection) -> Position:
    """Return where the log ends."""
    seq, tx_time, digest = conn.execute("SELECT seq, tx_time, hash FROM head").fetchone()
    return Position(seq, read_instant(tx_time), digest)


def end(conn: sqlite3.Connection) -> tuple[Position, bool]:
    """Return where the log ends, and whether a mark stops it there."""
    seq, tx_time, digest, is_marked = conn.execute(_END).fetchone()
    return Position(seq, read_instant(tx_time), digest), bool(is_marked)


def restore(conn: sqlite3.Connection, events: Sequence[Stored], name: str, now: datetime) -> Group:
    """Append events that were admitted before, as they are, right after the head.

    Raises:
        LedgerBroken: an event does not follow, is not what its hash says, or breaks a rule.
    """
    replayed = prepare_replay(events, position(conn), name)
    replay = Replay(load(conn, Needs.of(replayed)), position(conn), now)
    replay.take_all(events, replayed, name)
    if replay.appended:
        write(conn, replay)
    return replay


def load(conn: sqlite3.Connection, needs: Needs) -> State:
    """Read the rows that a group of drafts depends on; of most groups there is nothing yet."""
    state = State()
    events, ids, keys = _encode(needs.event_ids), _encode(needs.fact_ids), _encode(needs.keys)
    if not any(conn.execute(_HOLDS, (events, ids, keys)).fetchone()):
        return state
    _load_events(conn, state, events)
    for fact_id, standing in conn.execute(
        f"SELECT fact_id, standing FROM claims WHERE fact_id IN {_GIVEN}", (ids,)
    ):
        state.claims[fact_id] = Standing(standing)
    if state.claims:
        _load_facts(conn, state, state.claims)
        _load_chains(conn, state, needs)
        _load_placements_of(conn, state, state.facts)
        _load_sides(conn, state)
    _load_placements_at(conn, state, keys)
    return state


def _load_events(conn: sqlite3.Connection, state: State, event_ids: str) -> None:
    query = (
        "SELECT e.event_id, e.body, e.hash, s.content, s.identity, s.refs FROM events e "
        f"LEFT JOIN sealed s ON s.seq = e.seq WHERE e.event_id IN {_GIVEN}"
    )
    for event_id, body, digest, content, identity, refs in conn.execute(query, (event_ids,)):
        sealed = {"content": content, "identity": identity, "refs": refs}
        state.events[event_id] = read_event(body, digest, sealed)


def _load_facts(conn: sqlite3.Connection, state: State, fact_ids: Iterable[str]) -> None:
    query = f"SELECT {FACT} FROM facts WHERE fact_id IN {_GIVEN}"
    for row in conn.execute(query, (json.dumps(list(fact_ids)),)):
        state.add_fact(fact_row(row))


def _load_chains(conn: sqlite3.Connection, state: State, needs: Needs) -> None:
    chained = [state.facts[fact_id] for fact_id in needs.chained if fact_id in state.facts]
    targets = [row.supersedes for row in chained if row.supersedes and row.supersedes not in state.facts]
    if targets:
        _load_facts(conn, state, targets)
    for root in dict.fromkeys(row.root for row in chained):
        middle = [row.effect_seq for row in chained if row.root == root and row.effect_seq is not None]
        found: dict[str, FactRow] = {}
        for which, place in (("", 0), *(pair for seq in middle for pair in ((UPTO, seq), (BEYOND, seq)))):
            order = "" if which == BEYOND else "DESC"
            # One link more than the group can retract, so that what stands beside them is always known.
            query = f"{_LINKS} {which} ORDER BY effect_seq {order} LIMIT ?"
            rows = conn.execute(query, (root, *([place] if which else ()), needs.size + 1))
            found.update((link.fact_id, link) for link in map(fact_row, rows))
        for fact_id, link in found.items():
            if fact_id not in state.facts:
                state.add_fact(link)
        links = [state.facts[fact_id] for fact_id in found]
        state.chains[root] = sorted(links, key=lambda link: link.effect_seq or 0)


def _load_placements_of(conn: sqlite3.Connection, state: State, fact_ids: Iterable[str]) -> None:
    query = f"SELECT {PLACEMENT} FROM placements WHERE fact_id IN {_GIVEN}"
    for row in conn.execute(query, (json.dumps(list(fact_ids)),)):
        state.add_placement(placement_row(row))


def _load_placements_at(conn: sqlite3.Connection, state: State, keys: str) -> None:
    query = (
        f"SELECT {_PLACEMENT} FROM json_each(?) k CROSS JOIN placements p "
        "WHERE p.store = json_extract(k.value, '$[0]') AND p.external_id = json_extract(k.value, '$[1]')"
    )
    for row in conn.execute(query, (keys,)):
        state.add_placement(placement_row(row))


def _load_sides(conn: sqlite3.Connection, state: State) -> None:
    ids = json.dumps(list(state.facts))
    for fact_id, store in conn.execute(f"SELECT fact_id, store FROM owed WHERE fact_id IN {_GIVEN}", (ids,)):
        state.owed.setdefault(fact_id, set()).add(store)
    for fact_id, hold_id in conn.execute(
        f"SELECT fact_id, hold_id FROM holds WHERE fact_id IN {_GIVEN}", (ids,)
    ):
        state.holds.setdefault(fact_id, set()).add(hold_id)


def write(conn: sqlite3.Connection, group: Group) -> dict[str, list[bytes]]:
    """Write what a group appended and changed; returns the salts of erased sections by fact id."""
    state = group.state
    _write_log(conn, group)
    if state.new_claims:
        rows = [(fact_id, standing.value, seq) for fact_id, (standing, seq) in state.new_claims.items()]
        _insert(conn, "claims (fact_id, standing, seq)", rows)
    _write_facts(conn, group)
    if state.dropped_placements:
        conn.executemany(
            "DELETE FROM placements WHERE store = ? AND external_id = ? AND fact_id = ?",
            list(state.dropped_placements),
        )
    if state.changed_placements:
        _insert(
            conn,
            f"placements ({PLACEMENT})",
            [
                (
                    p.store, p.external_id, p.fact_id, p.scope, p.stored_at, p.until, p.state.value,
                    p.outcome, p.id,
                )
                for p in state.changed_placements.values()
            ],
            "ON CONFLICT (store, external_id, fact_id) DO UPDATE SET "
            "state = excluded.state, outcome = excluded.outcome, id = excluded.id, until = excluded.until",
        )  # fmt: skip
    _write_sides(conn, state)
    erased = _erase_forgotten(conn, group)
    _dereference(conn, group)
    return erased


def _insert(
    conn: sqlite3.Connection, into: str, rows: Sequence[Sequence[object]], on_conflict: str = ""
) -> None:
    """Insert rows many to a statement: each statement takes up the interpreter lock but once."""
    at = 0
    for size in _AT_ONCE:
        while len(rows) - at >= size:
            parameters = list(chain.from_iterable(rows[at : at + size]))
            conn.execute(_statement(into, len(rows[at]), size, on_conflict), parameters)
            at += size


@cache
def _statement(into: str, columns: int, rows: int, on_conflict: str) -> str:
    row = f"({', '.join('?' * columns)})"
    values = ", ".join([row] * rows)
    return f"INSERT INTO {into} VALUES {values} {on_conflict}"


def _write_log(conn: sqlite3.Connection, group: Group) -> None:
    _insert(
        conn,
        "events (seq, event_id, fact_id, tx_time, hash, body)",
        [
            (e.seq, e.prepared.draft.event_id, e.prepared.draft.fact_id, e.tx_time, e.hash, e.body)
            for e in group.appended
        ],
    )
    sealed = []
    for event in group.appended:
        sections = event.prepared.sections
        if sections:
            row: list[object] = [event.seq]
            for name in SECTIONS:
                section = sections.get(name)
                row += (None, None) if section is None else (section.body, section.salt)
            sealed.append(row)
    _insert(conn, "sealed (seq, content, content_salt, identity, identity_salt, refs, refs_salt)", sealed)
    last = group.appended[-1]
    conn.execute(
        "UPDATE head SET seq = ?, tx_time = ?, hash = ?, count = count + ?",
        (last.seq, last.tx_time, last.hash, len(group.appended)),
    )


def _write_facts(conn: sqlite3.Connection, group: Group) -> None:
    state = group.state
    if state.new_facts:
        times = {event.seq: event.tx_time for event in group.appended}
        _insert(
            conn,
            f"facts ({FACT}, tx_time)",
            [
                (
                    f.fact_id, f.seq, f.root, f.supersedes, f.space, f.subject, f.predicate, f.provenance,
                    f.valid_from, f.valid_to, f.actor, f.receipt_id, f.effect_seq, f.retract_seq,
                    f.forget_seq, f.live, f.identity_gone, f.covered_from, times[f.seq],
                )
                for f in state.new_facts.values()
            ],
        )  # fmt: skip
    if state.touched:
        conn.executemany(
            "INSERT INTO blocks (block, changed) VALUES (?, ?) "
            "ON CONFLICT (block) DO UPDATE SET changed = excluded.changed",
            list(state.touched.items()),
        )
    if state.changed_facts:
        conn.executemany(
            "UPDATE facts SET effect_seq = ?, retract_seq = ?, forget_seq = ?, live = ?, identity_gone = ?, "
            "space = ?, subject = ?, predicate = ?, covered_from = ? WHERE seq = ?",
            [
                (
                    f.effect_seq, f.retract_seq, f.forget_seq, f.live, f.identity_gone,
                    f.space, f.subject, f.predicate, f.covered_from, f.seq,
                )
                for f in state.changed_facts.values()
            ],
        )  # fmt: skip


def _write_sides(conn: sqlite3.Connection, state: State) -> None:
    if state.owed_settled:
        conn.executemany("DELETE FROM owed WHERE fact_id = ? AND store = ?", list(state.owed_settled))
    if state.owed_added:
        rows = [(*key, due_at) for key, due_at in state.owed_added.items()]
        conn.executemany("INSERT OR IGNORE INTO owed (fact_id, store, due_at) VALUES (?, ?, ?)", rows)
    if state.holds_released:
        conn.executemany("DELETE FROM holds WHERE fact_id = ? AND hold_id = ?", list(state.holds_released))
    if state.holds_added:
        holds = [(fact_id, hold_id, seq) for (fact_id, hold_id), seq in state.holds_added.items()]
        conn.executemany("INSERT INTO holds (fact_id, hold_id, seq) VALUES (?, ?, ?)", holds)


def _erase_forgotten(conn: sqlite3.Connection, group: Group) -> dict[str, list[bytes]]:
    erased: dict[str, list[bytes]] = {}
    for fact_id, (identity, seq) in group.state.forgotten.items():
        theirs = "seq IN (SELECT seq FROM events WHERE fact_id = ?)"
        salts = conn.execute(
            f"SELECT content_salt FROM sealed WHERE {theirs} AND content_salt IS NOT NULL", (fact_id,)
        )
        erased[fact_id] = [salt for (salt,) in salts]
        conn.execute(f"UPDATE sealed SET content = NULL, content_salt = NULL WHERE {theirs}", (fact_id,))
        if identity:
            # The forget's own reason stays: it is the record of why nothing else is left.
            conn.execute(
                f"UPDATE sealed SET identity = NULL, identity_salt = NULL WHERE {theirs} AND seq < ?",
                (fact_id, seq),
            )
    return erased


def _dereference(conn: sqlite3.Connection, group: Group) -> None:
    """Take the ids and scopes of a fact's removed entries."""
    for fact_id, seq in group.state.dereferenced.items():
        conn.execute(
            "UPDATE sealed SET refs = NULL, refs_salt = NULL "
            "WHERE seq IN (SELECT seq FROM events WHERE fact_id = ?) AND seq <= ?",
            (fact_id, seq),
        )


def note_erasures(conn: sqlite3.Connection, group: Group, *, values: bool = True) -> None:
    """Note what a group erased, for whoever sees to it that no copy is left; or only what of identities."""
    state = group.state
    what = {fact_id: identity for fact_id, (identity, _) in state.forgotten.items() if values or identity}
    what.update(dict.fromkeys(state.dereferenced, True))
    for fact_id, identity in what.items():
        conn.execute(
            "INSERT INTO notes (topic, key, value, holder, since) VALUES ('erasure', ?, ?, ?, ?) "
            "ON CONFLICT (topic, key) DO UPDATE "
            "SET value = max(value, excluded.value), holder = excluded.holder",
            (
                fact_id,
                "identity" if identity else "content",
                str(group.position.seq),
                format_instant(group.now),
            ),
        )
