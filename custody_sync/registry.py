"""Which stores there are, by name: ours, other packages', and what a program registered itself.

Nothing is imported before a name is asked for, so that a list of stores costs no vendor. The
order of precedence is: registered here, ours, entry points of the group `custody_sync.stores`.
"""

from __future__ import annotations

import importlib
import os
import re
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from importlib.metadata import EntryPoint, entry_points
from types import MappingProxyType
from typing import Any, TypeAlias, cast

from custody_sync.errors import InvalidStore, MissingExtra

StoreClass: TypeAlias = Callable[..., Any]
"""Whatever makes a store when it is called; a class, usually."""

ENTRY_POINTS = "custody_sync.stores"
LOAD_PLUGINS = "CUSTODY_SYNC_LOAD_PLUGINS"
"""Names the entry points that may be loaded, separated by commas; unset allows all, empty none."""

_NAME = re.compile(r"[a-z][a-z0-9_-]*\Z")


@dataclass(frozen=True, slots=True)
class Known:
    """A store of this package: where its class is, and which extra brings its vendor."""

    target: str
    """`module:Class`, imported when it is asked for."""
    extra: str

    @property
    def install(self) -> str:
        """Return the command that installs the vendor."""
        return f"pip install 'custody-sync[{self.extra}]'"


known_stores: Mapping[str, Known] = MappingProxyType(
    {
        "cognee": Known("custody_sync.adapters.cognee:CogneeStore", "cognee"),
        "langchain": Known("custody_sync.adapters.langchain:LangChainStore", "langchain"),
        "langgraph": Known("custody_sync.adapters.langgraph:LangGraphStore", "langgraph"),
        "letta": Known("custody_sync.adapters.letta:LettaStore", "letta"),
        "mem0": Known("custody_sync.adapters.mem0:Mem0Store", "mem0"),
        "pgvector": Known("custody_sync.adapters.pgvector:PgVectorStore", "pgvector"),
        "zep": Known("custody_sync.adapters.zep:ZepStore", "zep"),
    }
)
"""The stores of this package, by name, in alphabetical order."""

_registered: dict[str, StoreClass | str] = {}

registered_stores: Mapping[str, StoreClass | str] = MappingProxyType(_registered)
"""What `register_store` was given: a read-only view that follows later calls."""


def register_store(name: str, cls: StoreClass | str, clobber: bool = False) -> None:
    """Register a store class, or its `module:Class`, under a name.

    A name that is taken is refused unless `clobber` says that replacing it is meant: two
    packages that silently fight over one name would send memories to the wrong place.
    """
    if not _NAME.match(name):
        raise InvalidStore(
            store=name, problem="a name is lower-case letters, digits, - and _, starting with a letter"
        )
    if not callable(cls) and not _is_target(cls):
        raise InvalidStore(store=name, problem="give a class or 'module:Class'")
    if not clobber and (name in known_stores or _registered.get(name, cls) != cls):
        raise InvalidStore(store=name, problem="the name is taken; clobber=True replaces it")
    _registered[name] = cls


def store_names() -> list[str]:
    """Return every name that `store_class` knows, in alphabetical order, without importing a store."""
    return sorted({*_registered, *known_stores, *_plugins()})


def store_class(name: str) -> StoreClass:
    """Return the class registered under a name; it is imported now and not before.

    Raises:
        InvalidStore: Nothing has that name, or its target cannot be imported.
        MissingExtra: The vendor's package is not installed.
    """
    if name in _registered:
        cls = _registered[name]
        return _load(name, cls, extra=None) if isinstance(cls, str) else cls
    if name in known_stores:
        known = known_stores[name]
        return _load(name, known.target, extra=known.extra)
    plugin = _plugins().get(name)
    if plugin is not None:
        return _load(name, plugin.value, extra=None)
    raise InvalidStore(store=name, problem=f"no such store; known are {', '.join(store_names())}")


def _is_target(target: object) -> bool:
    if not isinstance(target, str):
        return False
    module, _, attribute = target.partition(":")
    return bool(module) and attribute.isidentifier()


def _load(name: str, target: str, *, extra: str | None) -> StoreClass:
    module, _, attribute = target.partition(":")
    try:
        cls = getattr(importlib.import_module(module), attribute)
    except ModuleNotFoundError as error:
        foreign = error.name is not None and not error.name.startswith("custody_sync")
        if extra is not None and foreign:
            raise MissingExtra(feature=f"store {name!r}", extra=extra) from None
        raise InvalidStore(store=name, problem=f"there is no module {error.name}") from None
    except AttributeError:
        raise InvalidStore(store=name, problem=f"module {module} has no {attribute}") from None
    if not callable(cls):
        raise InvalidStore(store=name, problem=f"{target} is not a class")
    return cast("StoreClass", cls)


def _plugins() -> dict[str, EntryPoint]:
    allowed = os.environ.get(LOAD_PLUGINS)
    found = {point.name: point for point in entry_points(group=ENTRY_POINTS)}
    if allowed is None:
        return found
    wanted = {name.strip() for name in allowed.split(",")}
    return {name: point for name, point in found.items() if name in wanted}


__all__ = [
    "ENTRY_POINTS",
    "LOAD_PLUGINS",
    "Known",
    "StoreClass",
    "known_stores",
    "register_store",
    "registered_stores",
    "store_class",
    "store_names",
]
