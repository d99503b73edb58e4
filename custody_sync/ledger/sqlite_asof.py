"""Who is believed at two instants, in SQLite: a page costs a page, now and in the past."""

from __future__ import annotations

import sqlite3
from collections.abc import Iterator
from datetime import datetime
from functools import lru_cache
from itertools import groupby
from operator import itemgetter
from typing import Any, NamedTuple

from custody_sync.ledger import rows as places
from custody_sync.ledger.answers import ANSWERED, Row, fact_of
from custody_sync.ledger.sqlite_reads import head, head_at
from custody_sync.ledger.storage import AsOf
from custody_sync.model import Fact, Head, Page, format_instant

_VALID = "f.valid_from <= :valid_at AND (f.valid_to IS NULL OR f.valid_to > :valid_at)"
# A link covers what took effect before it; links of a chain that are in effect and not retracted
# took effect in the order of the chain, so no walk along it is needed.
BELIEVED = f"""
f.effect_seq <= :head AND (f.retract_seq IS NULL OR f.retract_seq > :head) AND {_VALID}
AND (f.forget_seq IS NULL OR f.forget_seq > :head)
AND NOT EXISTS (
    SELECT 1 FROM facts d WHERE d.root = f.root AND d.effect_seq > f.effect_seq AND d.effect_seq <= :head
    AND (d.retract_seq IS NULL OR d.retract_seq > :head) AND d.valid_from <= :valid_at
)
"""
CLAIMED = f"""
f.seq <= :head AND (f.effect_seq IS NULL OR f.effect_seq > :head)
AND (f.retract_seq IS NULL OR f.retract_seq > :head) AND (f.forget_seq IS NULL OR f.forget_seq > :head)
AND {_VALID}
"""
# Where nothing has changed since, three sets with an index each hold all that can be believed:
# facts that nothing covers, claims, and facts covered only by what begins later than asked.
_LIVE = f"f.live AND {_VALID}"
_WAITING = f"f.effect_seq IS NULL AND f.retract_seq IS NULL AND f.forget_seq IS NULL AND {_VALID}"
_LATER = "FROM facts d WHERE d.supersedes IS NOT NULL AND d.valid_from > :valid_at"
_NOT_YET_COVERED = f"NOT f.live AND f.root IN (SELECT d.root {_LATER}) AND {BELIEVED}"

APART = 4
"""So few blocks in a row are not worth a question of their own."""


class Span(NamedTuple):
    """Places of the log in a row, and conditions of which whoever is believed there meets exactly one."""

    after: int
    upto: int | None
    kinds: list[str]


def as_of(conn: sqlite3.Connection, question: AsOf, now: datetime) -> Page[Fact]:
    """Return a page of the facts believed at the asked instants."""
    at = head_at(conn, question.tx_at)
    valid_at = question.valid_at or (now if at.tx_time is None else max(now, at.tx_time))
    parameters = {
        "head": at.seq,
        "valid_at": format_instant(valid_at),
        "space": question.space,
        "subject": question.subject,
        "predicate": question.predicate,
    }
    filters = question.space is not None, question.subject is not None, question.predicate is not None
    rows: list[Row] = []
    for span in _spans(conn, question, at, parameters):
        here = {**parameters, "after": span.after, "upto": span.upto, "limit": question.limit + 1 - len(rows)}
        found: list[Row] = []
        for kind in span.kinds:
            found += conn.execute(_select(kind, span.upto is not None, *filters), here).fetchall()
        if len(span.kinds) > 1:
            found.sort(key=itemgetter(0))
        rows += found
        if len(rows) > question.limit:
            break
    facts = [fact_of(row, at.seq) for row in rows[: question.limit]]
    return Page(facts, head=at, next=facts[-1].seq if len(rows) > question.limit else None)


def _spans(conn: sqlite3.Connection, question: AsOf, at: Head, parameters: dict[str, Any]) -> Iterator[Span]:
    """Yield where to look, in the order of the log."""
    any_of = [f"(({BELIEVED}) OR ({CLAIMED}))" if question.include_claimed else BELIEVED]
    if at.tx_time is not None and parameters["valid_at"] < format_instant(at.tx_time):
        yield Span(question.after, None, any_of)
    elif question.tx_at is None or head(conn).seq == at.seq:
        yield Span(
            question.after, None, unchanged(conn, parameters, include_claimed=question.include_claimed)
        )
    elif question.space is not None or question.subject is not None or not _has_blocks(conn):
        yield Span(question.after, None, any_of)
    else:
        kinds = unchanged(conn, parameters, include_claimed=question.include_claimed)
        for first, last, changed in _runs(conn, question.after, at.seq):
            after = max(question.after, (first << places.BLOCK_BITS) - 1)
            yield Span(after, ((last + 1) << places.BLOCK_BITS) - 1, any_of if changed else kinds)


def unchanged(
    conn: sqlite3.Connection, parameters: dict[str, Any], *, include_claimed: bool = False
) -> list[str]:
    """Return the conditions that hold where nothing has changed since the instant asked about.

    Whoever is believed meets exactly one of them.
    """
    kinds = [_LIVE]
    if include_claimed:
        kinds.append(_WAITING)
    if conn.execute(f"SELECT EXISTS (SELECT 1 {_LATER})", parameters).fetchone()[0]:
        kinds.append(_NOT_YET_COVERED)
    return kinds


def _has_blocks(conn: sqlite3.Connection) -> bool:
    (version,) = conn.execute("PRAGMA user_version").fetchone()
    return not 0 < version < 3


def _runs(conn: sqlite3.Connection, after: int, head: int) -> list[tuple[int, int, bool]]:
    """Return blocks in a row: the first, the last, and whether any has changed since a head."""
    query = "SELECT block, changed > ? FROM blocks WHERE block BETWEEN ? AND ? ORDER BY block"
    blocks = conn.execute(query, (head, places.block_of(after), places.block_of(head)))
    runs: list[tuple[int, int, bool]] = []
    for changed, group in groupby(blocks, key=itemgetter(1)):
        these = [block for block, _ in group]
        runs.append((these[0], these[-1], bool(changed)))
    joined: list[tuple[int, int, bool]] = []
    for first, last, changed in runs:
        # What is asked of the changed holds of all, so a few that have not need no question of their own.
        changed = changed or last - first < APART
        if joined and joined[-1][2] == changed:
            first = joined.pop()[0]
        joined.append((first, last, changed))
    return joined


@lru_cache(maxsize=128)
def _select(kind: str, ends: bool, space: bool, subject: bool, predicate: bool) -> str:
    where = [kind, "f.seq > :after"]
    if ends:
        where.append("f.seq <= :upto")
    # The unary plus keeps SQLite on the subject's index, by far the narrower of the two.
    if space:
        where.append("+f.space = :space" if subject else "f.space = :space")
    if subject:
        where.append("f.subject = :subject")
    if predicate:
        where.append("f.predicate = :predicate")
    return (
        f"SELECT {ANSWERED} FROM facts f LEFT JOIN sealed s ON s.seq = f.seq WHERE {' AND '.join(where)} "
        "ORDER BY f.seq LIMIT :limit"
    )
