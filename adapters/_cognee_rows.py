"""What a fact is in Cognee: a file with a last line of its own, metadata, and a tag to find it by."""

from __future__ import annotations

import json
import re
from collections.abc import Mapping
from dataclasses import dataclass
from datetime import UTC, datetime
from itertools import groupby
from typing import Any
from urllib.parse import quote

from custody_sync.model import SOURCE, Entry, Label

_UNTAGGED = "~untagged"
"""Ends the id of a row that this adapter did not put: no tag would find its chunks in the index."""
_LAST_LINE = re.compile(r"\n\n\[fact (?P<key>[^\s\]]+)(?: breaks=(?P<breaks>[0-9crl]+))?\]\Z")
_BREAK = re.compile(r"\r\n|\r|\n")
_KINDS = {"\r\n": "c", "\r": "r", "\n": "l"}
_BREAKS = {kind: text for text, kind in _KINDS.items()}
_RUN = re.compile(r"(\d{1,9})([crl])")


@dataclass(frozen=True, slots=True)
class Row:
    """One data item of a dataset, as a listing shows it."""

    data_id: str
    metadata: Mapping[str, Any]
    created_at: datetime | None

    @property
    def fact_id(self) -> str | None:
        """Return the fact id of our label, if it has one."""
        fact_id = self.metadata.get("fact_id")
        return fact_id if self.metadata.get("source") == SOURCE and isinstance(fact_id, str) else None

    @property
    def generation(self) -> str | None:
        """Return the generation of our label, if it has one."""
        return self.entry("", "").generation

    @property
    def external_id(self) -> str:
        """Return the data id, marked where no tag leads to its chunks."""
        tags = self.metadata.get("node_set")
        tagged = self.fact_id is not None and isinstance(tags, list) and fact_tag(self.fact_id) in tags
        return self.data_id if tagged else f"{self.data_id}{_UNTAGGED}"

    def entry(self, store: str, scope: str, text: str | None = None) -> Entry:
        """Return it as an entry."""
        return Entry.from_metadata(
            self.metadata,
            store=store,
            external_id=self.external_id,
            scope=scope,
            text=text,
            created_at=self.created_at,
        )


def read_row(raw: Mapping[str, Any]) -> Row | None:
    """Read a listing's row; None for one without an id, or with metadata that cannot be read."""
    data_id, metadata = raw.get("id"), _metadata(raw.get("externalMetadata"))
    if not isinstance(data_id, str) or metadata is None:
        return None
    return Row(data_id, metadata, _dated(raw.get("createdAt")))


def read_chunk(raw: Mapping[str, Any]) -> Row | None:
    """Read of which row a search's chunk is a part; None for one that does not say it."""
    data_id, metadata = raw.get("document_id"), _metadata(raw.get("external_metadata"))
    if not isinstance(data_id, str) or metadata is None:
        return None
    return Row(data_id, metadata, None)


def _metadata(said: object) -> Mapping[str, Any] | None:
    """Read metadata, which a chunk has as JSON within JSON: none is empty, and what is no object is None."""
    try:
        read: object = json.loads(said) if isinstance(said, str) and said else said
    except (ValueError, RecursionError):
        return None
    if isinstance(read, Mapping):
        return read
    return None if read else {}


def data_id_of(external_id: str) -> str:
    """Return the id that the server knows."""
    return external_id.removesuffix(_UNTAGGED)


def is_tagged(external_id: str) -> bool:
    """Tell whether a tag leads to the chunks of what has this id."""
    return not external_id.endswith(_UNTAGGED)


def fact_tag(fact_id: str) -> str:
    """Return the one node set that the entries of a fact are in, and nothing else.

    The only one: when its last item is deleted, Cognee takes a node set from every chunk that was
    left behind and deletes those that are in none. A chunk in a second one would stay, and no
    question by the first would find it (`remove_belongs_to_set_tags`, 1.6.5).
    """
    return f"fact:{fact_id}"


def escaped(name: str) -> str:
    """Write a name so that Cognee takes it: a dataset's may have no space and no dot (1.6.5 answers 500)."""
    return quote(name, safe=":@").replace(".", "%2E")


# --- the text ------------------------------------------------------------------------------


def written(text: str, label: Label) -> bytes:
    """Return the bytes to upload: the text and a line that no other entry has.

    Cognee keeps one item for equal bytes, so that deleting one fact would take the other. It also
    turns every line break into LF; which ones were others, the last line says.
    """
    breaks = ""
    if "\r" in text:
        kinds = groupby(_KINDS[found] for found in _BREAK.findall(text))
        breaks = " breaks=" + "".join(f"{len(list(run))}{kind}" for kind, run in kinds)
    return f"{_BREAK.sub(chr(10), text)}\n\n[fact {label.key}{breaks}]".encode()


def read_text(raw: bytes | str) -> str | None:
    """Return the text as it was put; None for what is not readable, and as it is what has no such line."""
    try:
        body = raw.decode() if isinstance(raw, bytes) else raw
    except UnicodeDecodeError:
        return None
    last = _LAST_LINE.search(body)
    if last is None:
        return body
    text = body[: last.start()]
    return text if last["breaks"] is None else _broken(text, last["breaks"])


def ends_as_put(chunk: Mapping[str, Any], key: str) -> bool:
    """Tell whether a chunk is the whole of an entry: the first part, and the last line is its own."""
    body = chunk.get("text")
    last = _LAST_LINE.search(body) if isinstance(body, str) else None
    return last is not None and last["key"] == key and chunk.get("chunk_index") == 0


def _broken(text: str, breaks: str) -> str | None:
    runs = [(int(count), kind) for count, kind in _RUN.findall(breaks)]
    # A line that somebody altered must not make a text of a thousand million breaks.
    if sum(count for count, _ in runs) != text.count("\n"):
        return None
    kinds = "".join(kind * count for count, kind in runs)
    pieces = text.split("\n")
    ends = [*(_BREAKS[kind] for kind in kinds), ""]
    return "".join(piece + end for piece, end in zip(pieces, ends, strict=True))


def _dated(raw: object) -> datetime | None:
    """Read an instant; 1.6.5 lists naive ones, which are UTC."""
    try:
        read = datetime.fromisoformat(raw) if isinstance(raw, str) else None
        if read is None:
            return None
        return read.replace(tzinfo=UTC) if read.tzinfo is None else read.astimezone(UTC)
    except (OverflowError, ValueError):
        return None


__all__ = [
    "Row",
    "data_id_of",
    "ends_as_put",
    "escaped",
    "fact_tag",
    "is_tagged",
    "read_chunk",
    "read_row",
    "read_text",
    "written",
]
