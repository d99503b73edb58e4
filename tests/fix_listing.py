"""Listing a store while entries come and go."""

from __future__ import annotations

import asyncio
from collections.abc import Sequence

from custody_sync.testing.contract_case import Case, Put


async def check_listing(case: Case, held: set[str], passing: Sequence[Put]) -> None:
    """List while some entries are deleted and as many are put: what stays is listed, nothing twice.

    Args:
        case: of the store.
        held: the ids of everything that is there.
        passing: what goes meanwhile.
    """

    async def change() -> None:
        for put in passing:
            await case.put(case.fact(space=put.fact.space))
            await case.delete(put)

    whole = len(await case.listed())
    changing = asyncio.ensure_future(change())
    listed = [entry.external_id for entry in await case.listed()]
    await changing
    assert len(listed) == len(set(listed))
    assert held - {external_id for put in passing for external_id in put.ids} <= set(listed)
    after = [entry.external_id for entry in await case.listed()]
    assert len(after) == len(set(after)) == whole >= len(held)
