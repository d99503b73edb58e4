"""What the LangChain face is made of: how it is constructed, over what, and for whom it speaks."""

from __future__ import annotations

import copy
from contextlib import AsyncExitStack
from dataclasses import replace
from typing import TYPE_CHECKING, Any, Self, TypeVar

from custody_sync.adapters.langchain import LangChainStore
from custody_sync.canonical import check_name, check_optional
from custody_sync.coordinator import AsyncCoordinator
from custody_sync.errors import InsideEventLoop, InvalidInput
from custody_sync.faces._blocking import blocking
from custody_sync.faces._bridge import Bridge, Work
from custody_sync.faces._closing import AsyncClosing, Closing
from custody_sync.faces._langchain_documents import PREDICATE, read_texts
from custody_sync.faces._langchain_writing import Pending, View
from custody_sync.faces._options import check_options
from custody_sync.ledger import Ledger
from custody_sync.model import Entry
from custody_sync.repair import Adoption
from custody_sync.sync import Coordinator

if TYPE_CHECKING:
    from langchain_core.embeddings import Embeddings
    from langchain_core.vectorstores import VectorStore

T = TypeVar("T")

LEDGER = "sqlite:///custody.db"
SPACE = "documents"


class Face(Closing, AsyncClosing):
    """What a vector store over a ledger is, apart from what LangChain calls."""

    def __init__(
        self,
        custody: Coordinator | AsyncCoordinator,
        *,
        actor: str = "app",
        space: str = SPACE,
        store: str | None = None,
        wrapped: LangChainStore | None = None,
        receipt_id: str | None = None,
        on_pending: Pending | None = None,
    ) -> None:
        self._bridge = Bridge(custody, "CustodyVectorStore")
        if wrapped is not None and not isinstance(wrapped, LangChainStore):
            raise InvalidInput(field="wrapped", problem="must be the LangChainStore over the original")
        self._wrapped = wrapped
        self._view = View(
            space=check_name(space, "space"),
            actor=check_name(actor, "actor"),
            receipt_id=check_optional(receipt_id, "receipt_id"),
            store=check_optional(store, "store"),
            on_pending=on_pending,
        )
        self._owns = False
        self._opened: AsyncExitStack | None = None

    # --- made of a vector store -----------------------------------------------------------------

    @classmethod
    def over(
        cls,
        original: VectorStore | LangChainStore,
        ledger: str = LEDGER,
        *,
        create: bool = True,
        actor: str = "app",
        space: str = SPACE,
        on_pending: Pending | None = None,
        **options: Any,
    ) -> Self:
        """Put a ledger under a vector store: `store = CustodyVectorStore.over(vectors)`.

        It opens the ledger and a coordinator, and closes them; the vector store stays the caller's.

        Args:
            original: a LangChain vector store, or a `LangChainStore` where its options have to be said.
            ledger: the ledger's URL.
            create: create the ledger if it is missing.
            actor: who adds and deletes.
            space: to whom or what the documents belong.
            on_pending: as for the constructor.
            options: of the `Coordinator`.
        """
        check_options(options)
        wrapped = adapter_of(original)
        custody = blocking(lambda: Coordinator(ledger, create=create, stores=[wrapped], **options))
        try:
            face = cls._made(custody, wrapped, actor, space, on_pending)
        except BaseException:
            blocking(custody.close)
            raise
        return face

    @classmethod
    async def aover(
        cls,
        original: VectorStore | LangChainStore,
        ledger: str = LEDGER,
        *,
        create: bool = True,
        actor: str = "app",
        space: str = SPACE,
        on_pending: Pending | None = None,
        forget_key: bytes | None = None,
        **options: Any,
    ) -> Self:
        """Do what `over` does for code with a running loop; only the methods that are awaited work then."""
        check_options(options)
        wrapped = adapter_of(original)
        async with AsyncExitStack() as stack:
            opened = await Ledger.open(
                ledger, create=create, runtime=options.get("runtime"), forget_key=forget_key
            )
            await stack.enter_async_context(opened)
            custody = AsyncCoordinator(opened, stores=[wrapped], **options)
            await stack.enter_async_context(custody)
            face = cls._made(custody, wrapped, actor, space, on_pending)
            face._opened = stack.pop_all()
        return face

    @classmethod
    def _made(
        cls,
        custody: Coordinator | AsyncCoordinator,
        wrapped: LangChainStore,
        actor: str,
        space: str,
        on_pending: Pending | None,
    ) -> Self:
        face = cls(
            custody, actor=actor, space=space, store=wrapped.name, wrapped=wrapped, on_pending=on_pending
        )
        face._owns = True
        return face

    @property
    def custody(self) -> Coordinator | AsyncCoordinator:
        """The coordinator underneath: for `repair`, `verify`, `history`, and facts that are no documents."""
        return self._bridge.custody

    @property
    def embeddings(self) -> Embeddings | None:
        """The original's embeddings."""
        return None if self._wrapped is None else self._wrapped.original.embeddings

    def acting_as(self, actor: str, receipt_id: str | None = None) -> Self:
        """Return the same store speaking for somebody else; closing it closes nothing."""
        other = copy.copy(self)
        other._view = replace(
            self._view,
            actor=check_name(actor, "actor"),
            receipt_id=check_optional(receipt_id, "receipt_id"),
        )
        other._owns, other._opened = False, None
        return other

    def in_space(self, space: str) -> Self:
        """Return the same store for the documents of another space, such as `user:42`."""
        other = copy.copy(self)
        other._view = replace(self._view, space=check_name(space, "space"))
        other._owns, other._opened = False, None
        return other

    async def as_document(self, entry: Entry) -> Adoption:
        """Say what `adopt` makes of a document that was there before: one under its own id and metadata.

        `face.custody.adopt("langchain", space=face.as_document, actor=..., dry_run=False)`

        Raises:
            InvalidInput: its metadata cannot be kept without loss, or it has no text.
        """
        wrapped = self._wrapped
        metadata = {} if wrapped is None else await wrapped.metadata_of(entry.external_id)
        (said,) = read_texts([entry.text or ""], [metadata], [entry.external_id])
        return Adoption(
            space=self._view.space,
            subject=entry.external_id,
            predicate=PREDICATE,
            value=said.to_value(),
        )

    # --- closing --------------------------------------------------------------------------------

    def close(self) -> None:
        """Close what `over` opened; a store of a caller's coordinator closes nothing."""
        if self._opened is not None:
            raise InsideEventLoop(used="CustodyVectorStore", instead="aclose")
        if self._owns and isinstance(self.custody, Coordinator):
            blocking(self.custody.close)

    async def aclose(self) -> None:
        """Close what `over` or `aover` opened."""
        opened, self._opened = self._opened, None
        if opened is not None:
            await opened.aclose()
        else:
            self.close()

    def _run(self, work: Work[T], instead: str) -> T:
        return blocking(lambda: self._bridge.run(work, instead=instead))


def adapter_of(original: VectorStore | LangChainStore) -> LangChainStore:
    """Return the adapter over a vector store, or the one that was given."""
    return original if isinstance(original, LangChainStore) else LangChainStore(original)


__all__ = ["LEDGER", "SPACE", "Face", "adapter_of"]
