"""What a Letta server holds and compares: passages, their order by nearness, LIKE, tags after the cut."""

from __future__ import annotations

import re
from collections import Counter
from collections.abc import Callable, Iterable
from dataclasses import dataclass, field
from datetime import datetime
from math import sqrt
from typing import Any


@dataclass(slots=True)
class Faults:
    """What the service does wrong: for so many requests each, or `math.inf`."""

    lag: float = 0
    """For how many searches a passage that is deleted from now on is still served."""
    search_fails: float = 0
    throttled: float = 0
    fails_after: float = 0
    lost_reply: float = 0
    empty_body: float = 0
    reset: float = 0
    skips: float = 0
    """That many listings leave out the first row of their second page."""
    repeats: bool = False
    ignores_cursors: bool = False
    lying_delete: bool = False
    setup_fails_after: float = 0
    """Creations of archives and agents are committed and answered with 500."""
    answers: dict[str, tuple[int, Any]] = field(default_factory=dict)
    """What the next request of an operation is answered with, by somebody on the way; nothing is done."""
    before: dict[str, Callable[[], None]] = field(default_factory=dict)
    """What happens just before the next request of an operation, such as another program's delete."""

    def take(self, name: str) -> bool:
        """Tell whether this request is hit, and count it."""
        left: float = getattr(self, name)
        setattr(self, name, max(left - 1, 0))
        return left > 0


@dataclass(slots=True)
class Passage:
    """One passage; `until` is the search up to which a deleted one is still served."""

    id: str
    archive: str
    text: str
    metadata: dict[str, Any]
    tags: list[str] | None
    created_at: datetime
    words: Counter[str]
    until: float = 0

    def wire(self) -> dict[str, Any]:
        """Return it as the server does; the embedding, 4096 numbers there, is short here."""
        at = instant(self.created_at)
        nothing = dict.fromkeys(("source_id", "file_id", "file_name"))
        return {
            "id": self.id,
            "text": self.text,
            "archive_id": self.archive,
            "organization_id": "org-00000000-0000-4000-8000-000000000000",
            "created_at": at,
            "updated_at": at,
            "is_deleted": False,
            "metadata": self.metadata,
            "tags": self.tags,
            "embedding": [0.0, 0.0],
            "embedding_config": {"embedding_dim": 384, "embedding_model": "text-embedding-3-small"},
            **nothing,
        }


def instant(at: datetime) -> str:
    """Write an instant as the server does."""
    return at.isoformat().replace("+00:00", "Z")


def config(handle: str | None) -> dict[str, Any] | None:
    """Return the settings that a handle of an embedding model stands for."""
    if handle is None:
        return None
    known = {"embedding_endpoint_type": "openai", "embedding_model": "text-embedding-3-small"}
    return {**known, "embedding_dim": 384, "handle": handle}


def words(text: str) -> Counter[str]:
    """Count the words of a text, which is what this server's embedding model sees of it."""
    return Counter(re.findall(r"\w+", text.lower()))


def nearness(one: Counter[str], other: Counter[str]) -> float:
    """Return the cosine of two texts' words."""
    sizes = sqrt(sum(n * n for n in one.values()) * sum(n * n for n in other.values()))
    return sum(n * other[word] for word, n in one.items()) / sizes if sizes else 0.0


def like(text: str, wanted: str) -> bool:
    """Compare as LIKE does: without case, % anything, _ one character, a backslash the next as it is."""
    parts = re.findall(r"\\.|.", wanted.lower(), re.DOTALL)
    pattern = "".join({"%": ".*", "_": "."}.get(part, re.escape(part[-1])) for part in parts)
    return re.search(pattern, text.lower(), re.DOTALL) is not None


def tagged(rows: Iterable[Passage], tags: list[str] | None, mode: str) -> list[Passage]:
    """Return the rows with any or all of the tags; every row where none is asked for."""
    if not tags:
        return list(rows)
    enough = all if mode == "all" else any
    return [row for row in rows if enough(tag in (row.tags or ()) for tag in tags)]


__all__ = ["Faults", "Passage", "config", "instant", "like", "nearness", "tagged", "words"]
