"""The configured stores of a coordinator: each checked once, and reached through a gate of its own."""

from __future__ import annotations

from collections.abc import Iterable, Mapping

from custody_sync.errors import InvalidInput, InvalidStore
from custody_sync.ledger.storage import BEYOND
from custody_sync.ports import Store
from custody_sync.runtime import Runtime
from custody_sync.stores import Deadlines, Gate, Superseded
from custody_sync.throttling import Pace


def open_gates(
    stores: Iterable[Store],
    runtime: Runtime,
    deadlines: Deadlines,
    superseded: Superseded | Mapping[str, Superseded],
    paces: Mapping[str, Pace] | None = None,
) -> dict[str, Gate]:
    """Check the configured stores and return their gates by name.

    Raises:
        InvalidStore: a name is missing or used twice, or a verb is missing.
        InvalidInput: a policy or a pace names a store that is not there, or is none.
    """
    paces = paces or {}
    for known, pace in paces.items():
        if not isinstance(pace, Pace):
            raise InvalidInput(field="paces", problem=f"{known} has {type(pace).__name__}, not a Pace")
    if deadlines.lease <= deadlines.listing:
        problem = "lease must be longer than listing: a sweep renews it between two pages"
        raise InvalidInput(field="deadlines", problem=problem)
    if deadlines.lease > BEYOND.total_seconds():
        raise InvalidInput(field="deadlines", problem="lease must be an hour at most")
    gates: dict[str, Gate] = {}
    if not isinstance(stores, Iterable):
        raise InvalidInput(field="stores", problem=f"must be a list of stores, not {type(stores).__name__}")
    for store in stores:
        name = getattr(store, "name", None)
        if not isinstance(name, str) or not name.strip():
            raise InvalidStore(store=type(store).__name__, problem="has no name")
        for verb in ("put", "delete"):
            if not callable(getattr(store, verb, None)):
                raise InvalidStore(
                    store=name, problem=f"has no {verb}(); a store must be able to put and delete"
                )
        if name in gates:
            raise InvalidStore(store=name, problem="is configured twice; every store needs a name of its own")
        gates[name] = Gate(store, runtime, deadlines, _keeps(name, superseded), paces.get(name))
    if not isinstance(superseded, str):
        for name in superseded:
            if name not in gates:
                raise InvalidInput(
                    field="superseded", problem=f"names {name!r}, which is no configured store"
                )
    for name in paces:
        if name not in gates:
            raise InvalidInput(field="paces", problem=f"names {name!r}, which is no configured store")
    return gates


def _keeps(name: str, superseded: Superseded | Mapping[str, Superseded]) -> bool:
    policy = superseded if isinstance(superseded, str) else superseded.get(name, "remove")
    if policy not in ("remove", "keep"):
        raise InvalidInput(field="superseded", problem="must be 'remove' or 'keep'")
    return policy == "keep"
