"""Faces that close what they opened at the end of a `with` block."""

from __future__ import annotations

from abc import ABC, abstractmethod
from types import TracebackType
from typing import Self


class Closing(ABC):
    """What `with` closes."""

    __slots__ = ()

    @abstractmethod
    def close(self) -> None:
        """Close what was opened for this, and nothing of a caller's."""

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self.close()


class AsyncClosing(ABC):
    """What `async with` closes."""

    __slots__ = ()

    @abstractmethod
    async def aclose(self) -> None:
        """Close what was opened for this, and nothing of a caller's."""

    async def __aenter__(self) -> Self:
        return self

    async def __aexit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        await self.aclose()


__all__ = ["AsyncClosing", "Closing"]
