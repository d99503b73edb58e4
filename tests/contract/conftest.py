"""Which rules are tried on which fixture: all of them on each store's own, the short ones on its variants.

Proofs want a crowd (C-33 and later), troubles a service that fails (C-50), and stories a coordinator, a
ledger and hundreds of entries (C-70). A variant differs from its store in a client or an option, which the
rules before these try on each of them; CUSTODY_SYNC_FULL=1 tries everything on all, and with as many
entries as the public suite takes. Without it a crowd is still more than the hundred hits that an adapter
asks for first, and a full store is more than two pages of any of them.
"""

from __future__ import annotations

import os
import re

import pytest

from custody_sync.testing.contract import StoreHooks
from custody_sync.testing.memory_hooks import MemoryHooks

FULL = bool(os.environ.get("CUSTODY_SYNC_FULL"))
if not FULL:
    # In memory nothing is slow, and the suite's own tests go by its sizes.
    MemoryHooks.many, MemoryHooks.crowd = StoreHooks.many, StoreHooks.crowd
    StoreHooks.many, StoreHooks.crowd = 222, 121

VARIANTS = {
    "TestApplicationsTable",
    "TestAsyncLettaArchives",
    "TestAsyncMemory",
    "TestAsyncMemoryClient",
    "TestAsyncPostgresStoreExact",
    "TestAsyncSqliteStore",
    "TestAsyncZep",
    "TestCogneeStoreInOneDataset",
    "TestCogneeStoreWithoutAccessControl",
    "TestHostedStore",
    "TestInMemoryStoreInOneNamespace",
    "TestInMemoryStoreWithoutIndex",
    "TestLangChainsTable",
    "TestLettaOneArchive",
    "TestMem0sTable",
    "TestMemoryThatFiltersLate",
    "TestOneUserForAllSpaces",
    "TestPgVectorStoreWithHalfvec",
    "TestPgVectorStoreWithHnsw",
    "TestPlainStore",
    "TestPostgresStore",
    "TestSqliteStoreWithIndex",
    "TestStoreWithItsOwnIds",
    "TestThreeCallables",
    "TestZepAsItIs",
}
_LONG = re.compile(r"test_c(3[3-9]|[4-8]\d)_")


def pytest_collection_modifyitems(config: pytest.Config, items: list[pytest.Item]) -> None:
    """Leave out the long rules of variants unless everything was asked for."""
    if FULL:
        return
    out = [item for item in items if _is_on_request(item)]
    if out:
        config.hook.pytest_deselected(items=out)
        items[:] = [item for item in items if not _is_on_request(item)]


def _is_on_request(item: pytest.Item) -> bool:
    of = getattr(item, "cls", None)
    return of is not None and of.__name__ in VARIANTS and _LONG.match(item.name) is not None
