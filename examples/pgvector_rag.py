"""A RAG table that was there before custody: adopt its rows, answer through the guard, correct, forget.

Runs offline: an embedded Postgres, and a toy embedder in place of a model. `CUSTODY_SYNC_EXAMPLE_POSTGRES`
names a Postgres of yours instead; its role has to be allowed `create extension vector`. The example makes a
table of its own there, leaves it there, and stops where it is there already.
"""

from __future__ import annotations

import os
import tempfile
from contextlib import ExitStack
from pathlib import Path

import psycopg
from psycopg_pool import AsyncConnectionPool

from custody_sync import Coordinator
from custody_sync.adapters.pgvector import ExistingTable, PgVectorStore
from custody_sync.testing.embedding import WordEmbedder
from custody_sync.testing.postgres import EmbeddedPostgres

QUESTION = "how many days of parental leave"
HANDBOOK = [
    "Parental leave is 60 days, to be taken within a year.",
    "Travel is booked through the travel desk.",
    "Ana Lopez, phone 555-0144, answers questions on parental leave.",
]
TABLE = "custody_sync_example_handbook"
NEAREST = "select body from custody_sync_example_handbook order by embedding <=> %s::vector limit %s"
INSERT = (
    "insert into custody_sync_example_handbook (body, metadata, embedding) values (%s, %s::jsonb, %s::vector)"
)
embed = WordEmbedder(64)


def make_table(database: psycopg.Connection) -> None:
    """Make the table that your application has: a body, its vector, metadata, and rows."""
    database.execute("create extension if not exists vector")
    try:
        database.execute(
            "create table custody_sync_example_handbook (id bigint generated always as identity primary key,"
            " body text not null, metadata jsonb not null default '{}', embedding vector(64) not null)"
        )
    except psycopg.errors.DuplicateTable:
        raise SystemExit(
            f"The table {TABLE} is there already and was not touched: drop it if an earlier run left it."
        ) from None
    for body in HANDBOOK:
        database.execute(INSERT, (body, '{"file": "handbook.pdf"}', str(embed(body))))


def retrieve(database: psycopg.Connection, question: str, k: int) -> list[str]:
    """Search the table as the application did so far."""
    return [body for (body,) in database.execute(NEAREST, (str(embed(question)), k)).fetchall()]


def main() -> None:
    """Tell the story."""
    with ExitStack() as stack:
        folder = Path(stack.enter_context(tempfile.TemporaryDirectory()))
        uri = os.environ.get("CUSTODY_SYNC_EXAMPLE_POSTGRES") or stack.enter_context(EmbeddedPostgres())
        database = stack.enter_context(psycopg.connect(uri, autocommit=True))
        make_table(database)

        # The lines to add: which column is what, and a ledger under the table.
        columns = ExistingTable(id="id", text="body", embedding="embedding", label="metadata")
        pool = AsyncConnectionPool(uri, open=False, min_size=1, max_size=4)
        store = PgVectorStore(
            pool, table=TABLE, dimensions=64, embed=embed, existing=columns, name="documents"
        )
        custody = Coordinator(f"sqlite:///{folder}/custody.db", create=True, stores=[store])
        stack.callback(custody.close)

        # Rows without a label are counted and left out until somebody answers for them.
        print("before adopt:", *custody.recall(QUESTION, k=2).notes)
        adopted = custody.adopt(
            "documents", actor="librarian", space="handbook", provenance="attested", dry_run=False
        )
        print(f"adopted: {adopted.adopted} rows, {adopted.labelled} of them labelled")

        # What changed supersedes what it was. Recall serves the new text, once, whatever is nearer.
        old = custody.recall(QUESTION, k=1, spaces=["handbook"]).hits[0]
        custody.write(
            value="Parental leave is 90 days since March.",
            space="handbook",
            actor="hr",
            receipt_id="memo-2026-03",
            supersedes=old.fact_id,
        )
        answer = custody.recall(QUESTION, k=1, spaces=["handbook"], with_history=True)
        print("now:", answer.hits[0].text, "was:", answer.hits[0].history[0].fact.text)

        # An erasure reaches the table and is verified by the table's own search.
        (ana,) = [hit for hit in custody.recall("Ana Lopez phone", k=3).hits if "555" in hit.text]
        erased = custody.forget(ana.fact_id, actor="dpo", reason="Ana asked")
        print("forgotten:", erased.complete, [removal.outcome.value for removal in erased.removals])

        # The prompt is built from what the ledger believes; the bare table still serves as well.
        context = "\n".join(f"- {hit.text} ({hit.actor})" for hit in custody.recall(QUESTION, k=5).hits)
        print(f"Answer from these records only:\n{context}")
        assert "60 days" not in context
        assert "555-0144" not in " ".join(retrieve(database, "Ana Lopez phone", 10))
        assert erased.complete


if __name__ == "__main__":
    main()
