"""Keep a ledger of facts under the memory stores that are already there.

Importing this package imports no store, no vendor and no terminal library: each public name is
loaded from its module when it is first used.
"""

from __future__ import annotations

import importlib
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from custody_sync.coordinator import AsyncCoordinator
    from custody_sync.errors import CustodyError
    from custody_sync.ledger import Ledger
    from custody_sync.model import (
        Entry,
        Erasure,
        Event,
        Fact,
        Hit,
        Label,
        Limits,
        Outcome,
        Page,
        Placement,
        Provenance,
    )
    from custody_sync.ports import Store, Validator
    from custody_sync.recalled import Budget, Recalled, RecallResult
    from custody_sync.results import (
        ForgetResult,
        Removal,
        RepairResult,
        Restored,
        RetractResult,
        VerifyResult,
        WriteResult,
    )
    from custody_sync.runtime import Runtime
    from custody_sync.sync import Coordinator

    __version__: str

__all__ = [
    "AsyncCoordinator",
    "Budget",
    "Coordinator",
    "CustodyError",
    "Entry",
    "Erasure",
    "Event",
    "Fact",
    "ForgetResult",
    "Hit",
    "Label",
    "Ledger",
    "Limits",
    "Outcome",
    "Page",
    "Placement",
    "Provenance",
    "RecallResult",
    "Recalled",
    "Removal",
    "RepairResult",
    "Restored",
    "RetractResult",
    "Runtime",
    "Store",
    "Validator",
    "VerifyResult",
    "WriteResult",
]

_ELSEWHERE = {
    "AsyncCoordinator": "custody_sync.coordinator",
    "Coordinator": "custody_sync.sync",
    "CustodyError": "custody_sync.errors",
    "Ledger": "custody_sync.ledger",
    **dict.fromkeys(
        (
            "ForgetResult",
            "Removal",
            "RepairResult",
            "Restored",
            "RetractResult",
            "VerifyResult",
            "WriteResult",
        ),
        "custody_sync.results",
    ),
    **dict.fromkeys(("Budget", "RecallResult", "Recalled"), "custody_sync.recalled"),
    "Runtime": "custody_sync.runtime",
    "Store": "custody_sync.ports",
    "Validator": "custody_sync.ports",
}


def __getattr__(name: str) -> Any:
    if name == "__version__":
        value: Any = importlib.import_module("importlib.metadata").version("custody-sync")
    elif name in __all__:
        value = getattr(importlib.import_module(_ELSEWHERE.get(name, "custody_sync.model")), name)
    else:
        raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
    globals()[name] = value
    return value


def __dir__() -> list[str]:
    return sorted({*globals(), *__all__, "__version__"})
