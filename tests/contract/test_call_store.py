"""Whatever three callables reach keeps the contract, as far as what they show goes."""

from __future__ import annotations

import pytest
from fakes.plain_index import PlainIndex, Refused
from fakes.plain_index import Trouble as Broken

from custody_sync.adapters.calls import CallStore
from custody_sync.testing import NotApplicable, StoreContract, StoreHooks, Trouble

ABSENT = {
    Trouble.EMPTY_BODY: "a call that gives no id is tried elsewhere",
    Trouble.PENDING: "a function has done what it does when it returns",
    Trouble.REPEATS: "an iterator has no pages",
    Trouble.SKIPS: "an iterator has no pages",
}


class IndexHooks(StoreHooks):
    """Sabotage of a plain index, and a stranger's text."""

    own_keys = False
    pause = 0.0
    index: PlainIndex
    has_lookups = True

    def adapter(self, index: PlainIndex) -> CallStore:
        """Wrap an index."""
        self.index = index
        return CallStore(
            search=index.search,
            add=index.add,
            delete=index.delete,
            get=index.get if self.has_lookups else None,
            entries=index.entries if self.has_lookups else None,
        )

    async def break_delete(self, store: CallStore) -> None:
        """Make deletes succeed without effect."""
        self.index.lies = True

    async def break_search(self, store: CallStore) -> None:
        """Make every search fail, quoting what was asked."""
        self.index.before = Broken(Refused("the text of a memory"), verbs=("search",))

    async def put_unlabelled(self, store: CallStore, text: str) -> str:
        """Add a text past custody."""
        return store.ids.write(self.index.add(text, {"author": "somebody"}))

    async def reopened(self, store: CallStore) -> CallStore:
        """Wrap the same index again."""
        return self.adapter(self.index)

    async def make_trouble(self, store: CallStore, trouble: Trouble, times: float = 1) -> None:
        """Let the index behave as the services behind such functions do."""
        if trouble in ABSENT:
            raise NotApplicable(ABSENT[trouble])
        index = self.index
        match trouble:
            case Trouble.LAG:
                index.lag = times
            case Trouble.LYING_DELETE:
                index.lies = True
            case Trouble.SEARCH_FAILS:
                index.before = Broken(Refused("quoted"), times, verbs=("search",))
            case Trouble.FAILS_AFTER | Trouble.LOST_REPLY:
                index.after = Broken(Refused("quoted", 500), times, verbs=("add", "delete"))
            case Trouble.THROTTLED | Trouble.RESET:
                status = 429 if trouble is Trouble.THROTTLED else None
                index.before = Broken(Refused("quoted", status), times)


class TestCallStore(IndexHooks, StoreContract):
    """With a lookup and a listing beside the three."""

    @pytest.fixture
    def store(self) -> CallStore:
        """Return a fresh one."""
        return self.adapter(PlainIndex())


class TestThreeCallables(IndexHooks, StoreContract):
    """With nothing but the three: what cannot be shown is not applicable, and nothing is claimed."""

    has_lookups = False

    @pytest.fixture
    def store(self) -> CallStore:
        """Return a fresh one."""
        return self.adapter(PlainIndex())
