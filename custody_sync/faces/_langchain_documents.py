"""How a LangChain document is a fact: what is checked of it before anything is done, and how it is read back.

The subject is the document's id, the predicate `document`, the value its content and metadata, the text its
content. So two processes over one ledger agree on every id, and a digest of the value is one of both.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

from custody_sync.adapters._shared import vendor
from custody_sync.canonical import check_name, check_text
from custody_sync.errors import InvalidInput
from custody_sync.faces._langchain_metadata import given_back, kept
from custody_sync.model import Fact, Json

if TYPE_CHECKING:
    from langchain_core.documents import Document
else:
    Document = vendor("langchain_core.documents", feature="the LangChain face", extra="langchain").Document

PREDICATE = "document"


@dataclass(frozen=True, slots=True, kw_only=True)
class Said:
    """A document that was checked and copied; without an id it gets one."""

    id: str | None
    content: str
    metadata: dict[str, Json]

    def to_value(self) -> Json:
        """Return what the fact states."""
        return {"page_content": self.content, "metadata": self.metadata}


def read_texts(texts: Iterable[str], metadatas: Any, ids: Any) -> list[Said]:
    """Check texts with what belongs to each; nothing is done yet, so that all or none is refused.

    Raises:
        InvalidInput: names both lengths where they differ, the key of metadata that cannot be kept, or a
            blank text or id.
    """
    if isinstance(texts, str):
        raise InvalidInput(field="texts", problem="must be several texts, not one string")
    listed = list(texts)
    metas = _as_many("metadatas", metadatas, listed)
    named = _as_many("ids", ids, listed)
    return [
        Said(id=read_id(key), content=_read_content(text), metadata=kept({} if meta is None else meta))
        for text, meta, key in zip(listed, metas, named, strict=True)
    ]


def read_documents(documents: Iterable[Document], ids: Any) -> list[Said]:
    """Check documents; ids that are given apart come before the documents' own."""
    listed = list(documents)
    for document in listed:
        if not isinstance(document, Document):
            problem = f"must be Documents, not {type(document).__name__}"
            raise InvalidInput(field="documents", problem=problem)
    own: list[Any] = [document.id for document in listed]
    return read_texts(
        [document.page_content for document in listed],
        [document.metadata for document in listed],
        own if ids is None else ids,
    )


def read_ids(ids: Any) -> list[str]:
    """Return ids that were asked for, each once."""
    if isinstance(ids, str) or not isinstance(ids, Iterable):
        raise InvalidInput(field="ids", problem=f"must be a list of ids, not {type(ids).__name__}")
    return list(dict.fromkeys(check_name(key, "id") for key in ids))


def read_id(key: object) -> str | None:
    """Return an id; None asks for a new one."""
    return None if key is None else check_name(key, "id")


def is_document(fact: Fact) -> bool:
    """Tell whether a fact is a document that was added through the face."""
    value = fact.value
    return (
        fact.predicate == PREDICATE
        and isinstance(value, dict)
        and value.keys() == {"page_content", "metadata"}
        and isinstance(value["metadata"], dict)
    )


def document_of(fact: Fact, text: str | None = None) -> Document:
    """Return a fact as a document, in new objects; what was not added as one goes by its fact id."""
    content = fact.text or ""
    if is_document(fact) and isinstance(fact.value, dict):
        return Document(
            id=fact.subject,
            page_content=content if text is None else text,
            metadata=given_back(fact.value["metadata"]),
        )
    return Document(id=fact.fact_id, page_content=content if text is None else text, metadata={})


def _read_content(text: object) -> str:
    content = check_text(text, "page_content")
    if not content.strip():
        raise InvalidInput(field="page_content", problem="must not be empty or blank")
    return content


def _as_many(field: str, given: Any, texts: Sequence[object]) -> list[Any]:
    if given is None:
        return [None] * len(texts)
    if isinstance(given, str | Mapping) or not isinstance(given, Iterable):
        raise InvalidInput(field=field, problem=f"must be a list, not {type(given).__name__}")
    listed = list(given)
    if len(listed) != len(texts):
        problem = f"there are {len(listed)}, but {len(texts)} texts; nothing was written"
        raise InvalidInput(field=field, problem=problem)
    return listed


__all__ = [
    "PREDICATE",
    "Document",
    "Said",
    "document_of",
    "is_document",
    "read_documents",
    "read_id",
    "read_ids",
    "read_texts",
]
