"""The shapes of a Cognee 1.6.5 server's answers."""

from __future__ import annotations

import json
import uuid
from collections.abc import Iterable
from typing import Any

import httpx

from fakes.cognee_server import Chunk, Dataset, Item


def refusal(status: int, detail: Any) -> httpx.Response:
    """Return an error."""
    return httpx.Response(status, json={"detail": detail})


def unreadable(_: str = "") -> httpx.Response:
    """Return what somebody without the permission gets."""
    text = "Request owner does not have necessary permission: [read] for all datasets requested."
    return refusal(403, f"{text} [PermissionDeniedError]")


def dataset(of: Dataset) -> dict[str, Any]:
    """Show a dataset."""
    return {
        "id": of.dataset_id,
        "name": of.name,
        "createdAt": "2026-11-29T17:45:00.000001Z",
        "updatedAt": None,
        "ownerId": of.owner_id,
    }


def run(status: str, of: Dataset) -> dict[str, Any]:
    """Show how a run went."""
    return {
        "status": status,
        "pipeline_run_id": str(uuid.uuid4()),
        "dataset_id": of.dataset_id,
        "dataset_name": of.name,
        "payload": None,
        "data_ingestion_info": None,
    }


def row(of: Dataset, item: Item) -> dict[str, Any]:
    """Show an item in a listing."""
    created = item.created_at.replace(tzinfo=None).isoformat()
    return {
        "id": item.data_id,
        "name": item.name,
        "createdAt": created,
        "updatedAt": created,
        "extension": item.extension,
        "mimeType": "text/plain",
        "rawDataLocation": f"file:///data/text_{item.md5}.txt",
        "datasetId": of.dataset_id,
        "label": None,
        "externalMetadata": metadata(item),
        "dataSize": len(item.text.encode()),
    }


def metadata(item: Item) -> dict[str, Any]:
    """Return what stands beside an item."""
    source = {"_cognee": {"source_uri": f"file:///srv/{item.name}.{item.extension}"}}
    tags = {"node_set": item.node_set} if item.node_set else {}
    return {**(item.metadata or {}), **source, **tags}


def missing(datasets: Iterable[Dataset]) -> str:
    """Say why there is nothing to search."""
    held = sum(len(one.items) for one in datasets)
    if held:
        return f"holds {held} data item(s) but its knowledge graph is empty; run cognify before searching."
    return "no data has been added; add data and run cognify before searching."


def chunk(distance: float, of: Chunk) -> dict[str, Any]:
    """Show a chunk that was found."""
    return {
        "id": str(uuid.uuid5(uuid.NAMESPACE_OID, f"{of.item.data_id}-{of.index}")),
        "type": "IndexSchema",
        "belongs_to_set": of.item.node_set or None,
        "text": of.text,
        "document_id": of.item.data_id,
        "document_name": of.item.name,
        "chunk_index": of.index,
        "external_metadata": json.dumps(metadata(of.item)),
        "score": distance,
    }
