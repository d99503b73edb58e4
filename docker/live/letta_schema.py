"""Make the tables of an empty Letta database; runs in Letta's own environment, with Letta's own settings.

The wheel ships no migrations, so the tables come from the classes it maps them to. Those know of no default
for a message's number, which the migrations draw from a sequence; without it no agent can be made.
"""

from __future__ import annotations

import asyncio

from letta.orm import Base
from letta.server.db import engine
from sqlalchemy import text

_NUMBERING = (
    "create sequence if not exists message_seq_id",
    "alter table messages alter column sequence_id set default nextval('message_seq_id')",
)


async def make_tables() -> None:
    """Make whatever is not there yet."""
    async with engine.begin() as connection:
        await connection.execute(text("create extension if not exists vector"))
        await connection.run_sync(Base.metadata.create_all)
        for statement in _NUMBERING:
            await connection.execute(text(statement))


asyncio.run(make_tables())
