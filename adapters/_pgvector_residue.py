"""What a deletion leaves in Postgres, and the VACUUM that takes it away."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from custody_sync.adapters._failures import describe
from custody_sync.adapters._pgvector_catalog import dead_rows
from custody_sync.adapters._pgvector_layout import Layout
from custody_sync.adapters._pgvector_pool import Pool

if TYPE_CHECKING:
    from psycopg import AsyncCursor
    from psycopg.errors import Diagnostic

ELSEWHERE = "Write-ahead log, replicas and backups of the database follow their own retention."


def left_behind(layout: Layout) -> str:
    """Say what waits for which VACUUM."""
    vectors = f" and their vectors in {layout.relation}_{layout.vectors}" if layout.vectors else ""
    waits = f"Postgres keeps the deleted rows of {layout.relation}{vectors} on disk"
    skips = "an automatic or plain VACUUM may pass over indexes"
    return (
        f"{waits} until VACUUM (INDEX_CLEANUP ON) ({skips}), and their bytes until free space is used "
        "again or VACUUM FULL."
    )


async def vacuumed(pool: Pool, layout: Layout) -> str:
    """Run the VACUUM and say what it freed, what it could not, or that it may not."""
    vacuum = f"VACUUM (INDEX_CLEANUP ON) {layout.relation}"
    refused: list[Diagnostic] = []

    def heard(notice: Diagnostic) -> None:
        # Who may not vacuum a table is only warned, without a code of its own, and the command succeeds.
        if notice.severity_nonlocalized == "WARNING":
            refused.append(notice)

    try:
        async with pool.cursor() as cursor:
            left = await _run(cursor, layout, heard)
    except Exception as error:
        # The forget stands; what it leaves is to be said, not raised.
        return f"{vacuum} failed ({describe(error)}); deleted rows stay on disk."
    if refused:
        return (
            f"{vacuum} was passed over: this role may not; deleted rows stay on disk until its owner runs it."
        )
    if left:
        return f"{vacuum} left {left} deleted rows, which an open transaction may still see; run it again."
    return f"{vacuum} has freed the deleted rows; bytes stay until the space is used again or VACUUM FULL."


async def _run(cursor: AsyncCursor[Any], layout: Layout, heard: Any) -> int:
    cursor.connection.add_notice_handler(heard)
    try:
        await cursor.execute(layout.sql.vacuum)
    finally:
        cursor.connection.remove_notice_handler(heard)
    return await dead_rows(cursor, layout.relation)
