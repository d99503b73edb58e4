"""What a Cognee 1.6.5 server holds and keeps to, in memory; `cognee_api` speaks for it.

Seen over loopback: one item for equal bytes, line breaks turned into LF, nothing searchable before
`cognify`, deletions that leave the index itself in place.
"""

from __future__ import annotations

import hashlib
import re
import uuid
from dataclasses import dataclass, field
from datetime import UTC, datetime, timedelta
from pathlib import PureWindowsPath
from typing import Any

import httpx

from custody_sync.testing.embedding import WordEmbedder

CHUNK = 2_000


@dataclass(slots=True)
class Item:
    """One data item: the file as it is stored, and what stands beside it."""

    data_id: str
    name: str
    extension: str
    text: str
    md5: str
    metadata: dict[str, Any] | None
    node_set: list[str]
    created_at: datetime
    is_indexed: bool = False


@dataclass(slots=True)
class Chunk:
    """A part of an item in the index; `left` counts the searches that still show a deleted one."""

    item: Item
    index: int
    text: str
    vector: list[float]
    left: float | None = None


@dataclass(slots=True)
class Dataset:
    """A dataset of one user, and who else may read it."""

    dataset_id: str
    name: str
    owner_id: str
    items: dict[str, Item] = field(default_factory=dict)
    chunks: list[Chunk] = field(default_factory=list)
    has_index: bool = False
    """The collection of chunks is there; deletions never take it away."""
    status: str | None = None
    readers: set[str] = field(default_factory=set)


@dataclass(slots=True)
class Switches:
    """What the server does wrong from now on; numbers count down by one each time."""

    lag: float = 0
    search_fails: float = 0
    held_searches: float = 0
    """Searches that wait for a running `cognify` until their client gives up."""
    throttled: float = 0
    fails_after: float = 0
    lost_reply: float = 0
    reset: float = 0
    empty_body: float = 0
    skips: float = 0
    repeats: bool = False
    lying_delete: bool = False
    pending: bool = False
    cognify_fails: float = 0
    ignores_node_names: bool = False
    shows_no_node_names: bool = False
    detags: bool = False
    """What a delete leaves in the index loses the node sets that are gone, and goes if it has no other."""

    def take(self, name: str) -> bool:
        """Return True if this time is one of those that were asked for."""
        left: float = getattr(self, name)
        if left > 0:
            setattr(self, name, left - 1)
        return left > 0


class CogneeState:
    """The server's datasets, users and rules.

    Args:
        version: What /health says.
        access_control: False is ENABLE_BACKEND_ACCESS_CONTROL=false: nobody logs in, and one index
            answers for every dataset.
        embed: Turns a text into a vector.
    """

    def __init__(
        self, *, version: str = "1.6.5", access_control: bool = True, embed: WordEmbedder | None = None
    ) -> None:
        self.version = version
        self.access_control = access_control
        self.switches = Switches()
        self.datasets: dict[str, Dataset] = {}
        self.history: list[dict[str, Any]] = []
        self.logins = 0
        self.user_id = str(uuid.uuid4())
        self.accounts: dict[tuple[str, str], str] = {}
        """User ids by email and password."""
        self.asking = self.user_id
        """Whose request is being answered."""
        self.lost_files: set[str] = set()
        """Data ids whose file is not on the server's disk any more."""
        self.tokens: dict[str, str] = {}
        self.api_keys: dict[str, str] = {}
        self._embed = embed or WordEmbedder(128)
        self._vectors: dict[str, list[float]] = {}
        self._now = datetime(2026, 11, 29, 17, 45, tzinfo=UTC)
        self._page_before: dict[str, Item] = {}

    # --- what a test does to it ------------------------------------------------------------

    def new_user(self, email: str, password: str) -> str:
        """Make another user, and return its id."""
        return self.accounts.setdefault((email, password), str(uuid.uuid4()))

    def new_key(self, user_id: str | None = None) -> str:
        """Make an API key of a user; of the first one, if none is named."""
        key = hashlib.sha256(str(len(self.api_keys)).encode()).hexdigest()
        self.api_keys[key] = user_id or self.user_id
        return key

    def dataset(self, name: str, owner_id: str | None = None) -> Dataset:
        """Return the dataset that a user has by a name, made if it is not there."""
        owner = owner_id or self.user_id
        dataset_id = str(uuid.uuid5(uuid.NAMESPACE_OID, f"{name}{owner}"))
        return self.datasets.setdefault(dataset_id, Dataset(dataset_id, name, owner))

    def add(
        self,
        dataset: Dataset,
        file_name: str,
        content: bytes,
        metadata: dict[str, Any] | None = None,
        node_set: list[str] | None = None,
    ) -> str:
        """Add a file as another program would, and return its data id."""
        return self.take_in(dataset, [(file_name, content)], [metadata], node_set or [])[0][1]

    def cognify(self, dataset: Dataset) -> None:
        """Index what is not indexed yet."""
        for item in dataset.items.values():
            if not item.is_indexed:
                parts = [item.text[at : at + CHUNK] for at in range(0, len(item.text), CHUNK)]
                dataset.chunks.extend(
                    Chunk(item, n, part, self._vector(part)) for n, part in enumerate(parts) if part.strip()
                )
                item.is_indexed = dataset.has_index = True
        dataset.status = "DATASET_PROCESSING_COMPLETED"

    # --- rules -----------------------------------------------------------------------------

    def _vector(self, text: str) -> list[float]:
        if text not in self._vectors:
            self._vectors[text] = self._embed(text)
        return self._vectors[text]

    def tick(self) -> datetime:
        """Return the next instant of the server's clock."""
        self._now += timedelta(microseconds=137)
        return self._now

    def take_in(
        self,
        dataset: Dataset,
        files: list[tuple[str, bytes]],
        metadata: list[dict[str, Any] | None],
        node_set: list[str],
    ) -> list[tuple[str, str]]:
        """Store files and return of each how it went and its data id."""
        done: list[tuple[str, str]] = []
        for (file_name, content), meta in zip(files, metadata, strict=True):
            md5 = hashlib.md5(content, usedforsecurity=False).hexdigest()
            same = next((item for item in dataset.items.values() if item.md5 == md5), None)
            if same is not None:
                done.append(("PipelineRunAlreadyCompleted", same.data_id))
                continue
            path = PureWindowsPath(file_name)
            text = content.decode().replace("\r\n", "\n").replace("\r", "\n")
            data_id = str(uuid.uuid4())
            dataset.items[data_id] = Item(
                data_id, path.stem, path.suffix[1:], text, md5, meta, node_set, self.tick()
            )
            done.append(("PipelineRunCompleted", data_id))
        return done

    def may_read(self, dataset_id: str) -> Dataset | None:
        """Return a dataset that whoever asks can read: its own, or one that was shared with it."""
        dataset = self.datasets.get(dataset_id)
        allowed = dataset is not None and self.asking in {dataset.owner_id, *dataset.readers}
        return dataset if allowed else None

    def may_change(self, dataset_id: str) -> Dataset | None:
        """Return a dataset that is of whoever asks."""
        dataset = self.datasets.get(dataset_id)
        return dataset if dataset is not None and dataset.owner_id == self.asking else None

    def listed(self, dataset: Dataset) -> list[Item]:
        """Return the items as a listing orders them: newest first, then by id."""
        return sorted(dataset.items.values(), key=lambda item: (-item.created_at.timestamp(), item.data_id))

    def indexes(self, dataset_ids: list[str]) -> list[tuple[Dataset | None, list[Chunk], bool]]:
        """Return the indexes that a search looks through, and whether each is there."""
        if self.access_control:
            chosen = [self.datasets[dataset_id] for dataset_id in dataset_ids]
            return [(dataset, dataset.chunks, dataset.has_index) for dataset in chosen]
        chunks = [chunk for dataset in self.datasets.values() for chunk in dataset.chunks]
        return [(None, chunks, any(dataset.has_index for dataset in self.datasets.values()))]

    def nearest(
        self, chunks: list[Chunk], query: str, top_k: int | None, node_names: list[str]
    ) -> list[tuple[float, Chunk]]:
        """Rank chunks by cosine distance; a filter by node sets comes before the cut."""
        if node_names and self.switches.shows_no_node_names:
            return []
        if node_names and not self.switches.ignores_node_names:
            chunks = [chunk for chunk in chunks if set(chunk.item.node_set) & set(node_names)]
        asked = self._embed(query)
        ranked = [
            (1.0 - sum(a * b for a, b in zip(asked, chunk.vector, strict=True)), chunk) for chunk in chunks
        ]
        ranked.sort(key=lambda pair: pair[0])
        return ranked[:top_k]

    def age(self) -> None:
        """Count one search: deleted chunks that the index still shows come nearer to their end."""
        for dataset in self.datasets.values():
            for chunk in dataset.chunks:
                chunk.left = None if chunk.left is None else chunk.left - 1
            dataset.chunks = [chunk for chunk in dataset.chunks if chunk.left is None or chunk.left > 0]

    def page(self, dataset: Dataset, limit: int, offset: int) -> list[Item]:
        """Return one page, which repeats or skips a row when a switch says so."""
        page = self.listed(dataset)[offset : offset + limit]
        before = self._page_before.get(dataset.dataset_id)
        if offset and self.switches.repeats and before is not None and page:
            page = [before, *page][:limit]
        if offset and self.switches.take("skips"):
            page = page[1:]
        if page:
            self._page_before[dataset.dataset_id] = page[-1]
        return page


def parts(request: httpx.Request) -> tuple[dict[str, list[str]], list[tuple[str, bytes]]]:
    """Read a multipart form: its fields and the files under `data`."""
    boundary = request.headers["Content-Type"].split("boundary=")[1].encode()
    fields: dict[str, list[str]] = {}
    files: list[tuple[str, bytes]] = []
    for part in request.read().split(b"--" + boundary)[1:-1]:
        head, _, content = part.removeprefix(b"\r\n").partition(b"\r\n\r\n")
        said = head.decode()
        name = re.search(r' name="([^"]*)"', said)
        file_name = re.search(r' filename="([^"]*)"', said)
        content = content.removesuffix(b"\r\n")
        if name is not None and file_name is not None:
            files.append((file_name[1], content))
        elif name is not None:
            fields.setdefault(name[1], []).append(content.decode())
    return fields, files
