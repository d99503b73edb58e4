"""LangChain faces over one ledger, on a clock by hand, each as a process of its own would open it."""

from __future__ import annotations

import contextlib
from collections.abc import AsyncIterator, Callable, Iterator
from pathlib import Path
from typing import Any, TypeAlias

import pytest

from custody_sync.adapters.langchain import LangChainStore
from custody_sync.coordinator import AsyncCoordinator
from custody_sync.faces.langchain import CustodyVectorStore
from custody_sync.ledger import Ledger
from custody_sync.removal import Patience
from custody_sync.runtime import Runtime
from custody_sync.sync import Coordinator
from custody_sync.testing import ManualClock, testing_runtime

HASTE = Patience(questions=3, first_wait=0.01, total=5.0)
Over: TypeAlias = Callable[..., CustodyVectorStore]


@pytest.fixture
def face_url(tmp_path: Path) -> str:
    """Return where the ledger of a test is."""
    return f"sqlite:///{tmp_path}/custody.db"


@pytest.fixture
def over(face_url: str) -> Iterator[Over]:
    """Put one ledger under vector stores; all faces are closed afterwards."""
    made: list[CustodyVectorStore] = []
    runtime = testing_runtime(clock=ManualClock())

    def make(original: Any, **more: Any) -> CustodyVectorStore:
        made.append(
            CustodyVectorStore.over(original, face_url, **{"runtime": runtime, "patience": HASTE} | more)
        )
        return made[-1]

    yield make
    for face in made:
        face.close()


@contextlib.asynccontextmanager
async def open_face(
    url: str, original: Any, *, runtime: Runtime | None = None, **more: Any
) -> AsyncIterator[CustodyVectorStore]:
    """Open a face for code that awaits, over a coordinator of the test's own."""
    runtime = runtime or testing_runtime(clock=ManualClock())
    wrapped = LangChainStore(original)
    async with (
        await Ledger.open(url, create=True, runtime=runtime) as ledger,
        AsyncCoordinator(ledger, stores=[wrapped], runtime=runtime, patience=HASTE) as custody,
    ):
        yield CustodyVectorStore(custody, wrapped=wrapped, **more)


def kinds(face: CustodyVectorStore) -> list[str]:
    """Return the kinds of all events of a face's ledger."""
    custody = face.custody
    assert isinstance(custody, Coordinator)

    async def read() -> list[str]:
        return [row["event"]["kind"] async for row in custody.ledger.export()]

    return custody.call(read())


def rows(original: Any) -> set[str]:
    """Return the texts that an in-memory vector store holds."""
    return {held["text"] for held in original.store.values()}
