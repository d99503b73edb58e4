"""What an episode says beside the label that it is to get: nothing of somebody else's is overwritten."""

from __future__ import annotations

from collections.abc import Collection, Mapping
from typing import Any

from custody_sync.errors import StoreRefused
from custody_sync.model import Entry


def beside_a_label(store: str, entry: Entry, found: Any | None, keys: Collection[str]) -> Mapping[str, Any]:
    """Return the metadata of an episode that has no label yet.

    Args:
        store: The store's name, for errors.
        entry: The episode as it was listed.
        found: The episode as it is; None where Zep knows none.
        keys: Of the label.

    Raises:
        StoreRefused: it is gone, has another text now, or has metadata where the label is to be.
    """
    metadata: Mapping[str, Any] = (found.metadata if found is not None else None) or {}
    cause = ""
    if found is None:
        cause = "no_such_episode"
    elif entry.text not in (None, found.content):
        cause = "text_changed"
    elif not metadata.keys().isdisjoint(keys):
        cause = "keys_of_the_label_are_taken"
    if cause:
        raise StoreRefused(store=store, operation="relabel", cause=cause)
    return metadata


__all__ = ["beside_a_label"]
