"""The options that a face hands on to the coordinator that it opens."""

from __future__ import annotations

import inspect
from collections.abc import Iterable

from custody_sync.errors import InvalidInput
from custody_sync.sync import Coordinator

_OWN = ("ledger", "create", "stores")
"""What a face says itself."""
OPTIONS = tuple(name for name in inspect.signature(Coordinator).parameters if name not in _OWN)


def check_options(names: Iterable[str]) -> None:
    """Refuse what is no option of a coordinator, before anything is opened.

    Raises:
        InvalidInput: names it, and those that there are.
    """
    for name in names:
        if name not in OPTIONS:
            problem = f"is no option here; a coordinator has {', '.join(OPTIONS)}"
            raise InvalidInput(field=name, problem=problem)


__all__ = ["OPTIONS", "check_options"]
