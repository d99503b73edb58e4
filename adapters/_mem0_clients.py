"""Which of Mem0's clients one is given, in words where it is none, and how it is called."""

from __future__ import annotations

import importlib.metadata
import inspect
import re
import sys
import warnings
from enum import Enum
from json import JSONDecodeError
from typing import Any, Protocol

from custody_sync.errors import InvalidStore

_OLDEST = (2, 0, 15)
_BASE = "mem0"
_TELEMETRY = "mem0.memory.telemetry"
_VERSION = re.compile(r"(\d+)\.(\d+)(?:\.(\d+))?")
_UPGRADE = (
    "mem0ai {found} is too old; pip install 'mem0ai>=2.0.15,<3' and read the notes of 2.0 first: ids of "
    "users go into filters, lists are paged, and defaults shrank"
)


class Kind(Enum):
    """The two halves of Mem0: its service, and its library on one's own vector store."""

    HOSTED = "hosted"
    LOCAL = "local"


class Client(Protocol):
    """What all four clients have; in two of them each is a coroutine function."""

    def add(self, *args: Any, **options: Any) -> Any:
        """Store messages."""
        ...

    def get(self, *args: Any, **options: Any) -> Any:
        """Return one memory."""
        ...

    def get_all(self, *args: Any, **options: Any) -> Any:
        """List memories."""
        ...

    def search(self, *args: Any, **options: Any) -> Any:
        """Search memories."""
        ...

    def delete(self, *args: Any, **options: Any) -> Any:
        """Delete one memory."""
        ...


class NotJson(Exception):
    """The service answered with success and a body that is no JSON, as with 204."""


def kind_of(client: object, name: str) -> Kind:
    """Tell the clients apart by what they have, so that no vendor has to be imported for it.

    Raises:
        InvalidStore: it is none of them, or its mem0ai is older than 2.0.15.
    """
    _check_version(client, name)
    if all(callable(getattr(client, verb, None)) for verb in ("add", "get", "get_all", "search", "delete")):
        if hasattr(client, "vector_store"):
            _warn_of_telemetry()
            return Kind.LOCAL
        if hasattr(client, "client") or hasattr(client, "async_client"):
            return Kind.HOSTED
    problem = (
        f"{type(client).__name__} is no MemoryClient, AsyncMemoryClient, Memory or AsyncMemory of mem0ai"
    )
    raise InvalidStore(store=name, problem=problem)


def is_blocking(client: object) -> bool:
    """Tell whether a client's calls block, so that they have to run in threads."""
    return not inspect.iscoroutinefunction(getattr(client, "add", None))


def decoded(error: Exception) -> Exception:
    """Return what a client's error means: an answer without JSON is no refusal, though it is a `ValueError`.

    mem0ai 2.2.1 calls `response.json()` on every success, an empty 204 included.
    """
    return NotJson() if isinstance(error, JSONDecodeError | UnicodeDecodeError) else error


def _check_version(client: object, name: str) -> None:
    if type(client).__module__.partition(".")[0] != _BASE:
        return
    try:
        found = importlib.metadata.version("mem0ai")
    except importlib.metadata.PackageNotFoundError:
        return
    numbers = _VERSION.match(found)
    if numbers is not None and tuple(int(number or 0) for number in numbers.groups()) < _OLDEST:
        raise InvalidStore(store=name, problem=_UPGRADE.format(found=found))


def _warn_of_telemetry() -> None:
    """Say what to set: the switch is read when mem0 is imported (https://github.com/mem0ai/mem0/issues/2062)."""
    if getattr(sys.modules.get(_TELEMETRY), "MEM0_TELEMETRY", False):
        warnings.warn(
            "mem0's telemetry is on: it reports calls, with hashed user ids, and keeps a collection; "
            "set MEM0_TELEMETRY=False in the environment before mem0 is imported",
            stacklevel=4,
        )


__all__ = ["Client", "Kind", "NotJson", "decoded", "is_blocking", "kind_of"]
