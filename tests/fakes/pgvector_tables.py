"""Tables as other programs make them, and how custody is told where an entry lies in each."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass

from custody_sync.adapters.pgvector import ExistingTable

COLLECTION = "6f1f6bb5-7a7a-4bd8-9a38-2f0c0a0b9d11"
_OTHER = "00000000-0000-4000-8000-000000000001"


@dataclass(frozen=True, slots=True, kw_only=True)
class Shape:
    """A table of somebody else's."""

    table: str
    ddl: tuple[str, ...]
    existing: ExistingTable
    stranger: str
    """Inserts a row as its own program would: `%(text)s`, `%(vector)s`; returns the id."""

    @property
    def text(self) -> str:
        """SQL that reads the text of a row."""
        key = self.existing.text_key
        return self.existing.text or f"{self.existing.label} ->> '{key}'"


# As langchain-postgres 0.0.19 makes them: vectors without a length, all collections in one table.
LANGCHAIN = Shape(
    table="langchain_pg_embedding",
    ddl=(
        "create extension if not exists vector",
        "create table langchain_pg_collection (uuid uuid primary key, name varchar not null, cmetadata json)",
        f"insert into langchain_pg_collection values ('{COLLECTION}', 'agent'), ('{_OTHER}', 'other')",
        """create table langchain_pg_embedding (
            id varchar not null primary key,
            collection_id uuid references langchain_pg_collection (uuid) on delete cascade,
            embedding vector,
            document varchar,
            cmetadata jsonb
        )""",
        "create index ix_cmetadata_gin on langchain_pg_embedding using gin (cmetadata jsonb_path_ops)",
        # Another collection, embedded by another model: its vectors cannot be compared with ours.
        f"""insert into langchain_pg_embedding values
            ('other', '{_OTHER}', '[1,2,3]', 'elsewhere', '{{"source": "handbook.pdf"}}')""",
    ),
    existing=ExistingTable(
        id="id",
        text="document",
        embedding="embedding",
        label="cmetadata",
        scope_column="collection_id",
        scope=COLLECTION,
        others=lambda fact: {"cmetadata": {"customer": fact.subject}},
    ),
    stranger=f"""insert into langchain_pg_embedding values
        ('strange', '{COLLECTION}', %(vector)s, %(text)s, '{{"source": "handbook.pdf"}}') returning id""",
)

# A table of an application: the database gives the ids, the label has columns, every row has a tenant.
APP = Shape(
    table="notes",
    ddl=(
        "create extension if not exists vector",
        "create schema app",
        """create table app.notes (
            id bigint generated always as identity primary key,
            tenant text not null,
            kind varchar(20) not null,
            body text not null,
            "The Vector" vector(64),
            fact_id text,
            ledger_id text,
            custody_space text,
            stored_at timestamptz,
            custody text,
            version int not null default 1,
            made_at timestamptz not null default now(),
            words tsvector generated always as (to_tsvector('simple', body)) stored
        )""",
        "create index on app.notes (fact_id)",
    ),
    existing=ExistingTable(
        schema="app",
        id="id",
        text="body",
        embedding="The Vector",
        label_columns={
            "fact_id": "fact_id",
            "ledger_id": "ledger_id",
            "space": "custody_space",
            "stored_at": "stored_at",
            "custody": "custody",
        },
        scope_column="tenant",
        scope="{space}",
        created_at="made_at",
        others=lambda fact: {"kind": fact.predicate[:20]},
    ),
    stranger="""insert into app.notes (tenant, kind, body, "The Vector")
        values ('acme', 'note', %(text)s, %(vector)s) returning id""",
)

# As mem0ai 2.2.1 makes it: the text lies in the JSON.
MEM0 = Shape(
    table="mem0",
    ddl=(
        "create extension if not exists vector",
        "create table mem0 (id uuid primary key, vector vector(64), payload jsonb)",
    ),
    existing=ExistingTable(
        id="id",
        text_key="data",
        embedding="vector",
        label="payload",
        others=lambda fact: {"payload": {"user_id": fact.space}},
    ),
    stranger="""insert into mem0 values ('b3f0c9f4-4b6e-4c61-8e5b-0d6a3f8d2c11', %(vector)s,
        jsonb_build_object('data', %(text)s::text, 'user_id', 'alex')) returning id""",
)

SHAPES: Mapping[str, Shape] = {"langchain": LANGCHAIN, "app": APP, "mem0": MEM0}
