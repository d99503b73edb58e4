"""The ledger of facts: its rules, its event format and its storages."""

from __future__ import annotations

from custody_sync.ledger.drafts import (
    Assert,
    Confirm,
    Digest,
    Draft,
    Forget,
    Hold,
    Place,
    Release,
    Remove,
    Repair,
    Retract,
)
from custody_sync.ledger.ledger import Ledger

__all__ = [
    "Assert",
    "Confirm",
    "Digest",
    "Draft",
    "Forget",
    "Hold",
    "Ledger",
    "Place",
    "Release",
    "Remove",
    "Repair",
    "Retract",
]
