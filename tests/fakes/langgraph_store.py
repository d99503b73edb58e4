"""LangGraph stores that misbehave on request, below every method they have, and a third party's store."""

from __future__ import annotations

import asyncio
from collections.abc import Iterable
from typing import Any, ClassVar

from langgraph.store.base import (
    BaseStore,
    GetOp,
    Item,
    ListNamespacesOp,
    Op,
    PutOp,
    Result,
    SearchItem,
    SearchOp,
)
from langgraph.store.memory import InMemoryStore
from langgraph.store.postgres import AsyncPostgresStore, PostgresStore
from langgraph.store.sqlite import AsyncSqliteStore, SqliteStore

from custody_sync.testing.contract_case import Trouble


class TooManyRequestsError(Exception):
    """What a client of a service says to 429."""

    status_code = 429
    headers: ClassVar = {"Retry-After": "0"}


class ServerError(Exception):
    """What a client of a service says to 500."""

    status_code = 500


class NoNamespaces(NotImplementedError):
    """This store lists no namespaces: what `BaseStore` has third parties' stores raise."""


class Sabotage:
    """Bend what reaches a LangGraph store and what it answers.

    A lagging search goes on serving what was deleted, to questions by text and by filter; a `get`
    and a plain listing do not.
    """

    lag: float = 0

    def __init__(self, *args: Any, **options: Any) -> None:
        super().__init__(*args, **options)
        self.left: dict[Trouble, float] = {}
        self.still_served: list[tuple[Item, float]] = []

    def make(self, trouble: Trouble, times: float) -> None:
        """Let something go wrong from now on."""
        if trouble is Trouble.LAG:
            self.lag = times
        else:
            self.left[trouble] = times

    def batch(self, ops: Iterable[Op]) -> list[Result]:
        """Run the operations, bent."""
        bent = [self._bent(op) for op in self._admitted(list(ops))]
        if doomed := self._doomed(bent):
            self._keep(super().batch(doomed))  # type: ignore[misc]  # a store follows in the MRO
        return self._answered(bent, super().batch(bent))  # type: ignore[misc]  # as above

    async def abatch(self, ops: Iterable[Op]) -> list[Result]:
        """Run the operations, bent."""
        bent = [self._bent(op) for op in self._admitted(list(ops))]
        if doomed := self._doomed(bent):
            self._keep(await super().abatch(doomed))  # type: ignore[misc]  # as above
        return self._answered(bent, await super().abatch(bent))  # type: ignore[misc]  # as above

    def _take(self, trouble: Trouble) -> bool:
        left = self.left.get(trouble, 0)
        self.left[trouble] = left - 1
        return left > 0

    def _admitted(self, ops: list[Op]) -> list[Op]:
        if self._take(Trouble.THROTTLED):
            raise TooManyRequestsError(f"slow down: {ops}")
        if self._take(Trouble.RESET):
            raise ConnectionResetError(f"reset before {ops}")
        return ops

    def _bent(self, op: Op) -> Op:
        if isinstance(op, PutOp) and op.value is None and self.left.get(Trouble.LYING_DELETE, 0) > 0:
            return GetOp(op.namespace, op.key)
        if not isinstance(op, SearchOp):
            return op
        # With an index only its own questions fail; without one every search is the same reading.
        asked = bool(op.query) or not getattr(self, "index_config", None)
        if asked and self._take(Trouble.SEARCH_FAILS):
            raise ConnectionError(f"no answer to {op.query}")
        if op.offset and not (op.query or op.filter):
            if self.left.get(Trouble.REPEATS, 0) > 0:
                return op._replace(offset=op.offset - 1)
            if self._take(Trouble.SKIPS):
                return op._replace(offset=op.offset + 1)
        return op

    def _doomed(self, ops: list[Op]) -> list[Op]:
        gone = [op for op in ops if isinstance(op, PutOp) and op.value is None]
        return [GetOp(op.namespace, op.key) for op in gone] if self.lag else []

    def _keep(self, items: list[Result]) -> None:
        self.still_served += [(item, self.lag) for item in items if isinstance(item, Item)]

    def _answered(self, ops: list[Op], answers: list[Result]) -> list[Result]:
        if any(isinstance(op, PutOp) for op in ops):
            if self._take(Trouble.FAILS_AFTER):
                raise ServerError(f"done all the same: {ops}")
            if self._take(Trouble.LOST_REPLY):
                raise ConnectionError(f"done all the same: {ops}")
        for n, op in enumerate(ops):
            if isinstance(op, SearchOp) and (op.query or op.filter):
                answers[n] = self._lagging(op, answers[n])
        return answers

    def _lagging(self, op: SearchOp, found: Any) -> list[Any]:
        served: list[Any] = list(found)
        for n, (item, left) in enumerate(self.still_served):
            below = item.namespace[: len(op.namespace_prefix)] == op.namespace_prefix
            fits = all(item.value.get(key) == value for key, value in (op.filter or {}).items())
            if left > 0 and below and fits:
                self.still_served[n] = (item, left - 1)
                dates = {"created_at": item.created_at, "updated_at": item.updated_at}
                served.insert(0, SearchItem(item.namespace, item.key, item.value, score=1.0, **dates))
        return served[: op.limit]


class CappedStore(BaseStore):
    """A third party's store that never answers with more than 40 items, nor with more than 40 namespaces.

    Args:
        index: As `InMemoryStore` takes it.
        is_blind: Its search shows nothing.
        enumerates: Whether it can list namespaces and search above all of them.
    """

    most = 40

    def __init__(self, *, index: Any = None, is_blind: bool = False, enumerates: bool = True) -> None:
        self._inner = InMemoryStore(index=index)
        self.is_blind = is_blind
        self.enumerates = enumerates

    def batch(self, ops: Iterable[Op]) -> list[Result]:
        """Run the operations under the cap."""
        capped = [self._capped(op) for op in ops]
        answers = self._inner.batch(capped)
        for n, op in enumerate(capped):
            if self.is_blind and isinstance(op, SearchOp) and op.query is not None:
                answers[n] = []
        return answers

    async def abatch(self, ops: Iterable[Op]) -> list[Result]:
        """Fail: a store of synchronous code is asked through its synchronous verbs."""
        raise AssertionError("asked through its asynchronous verbs")

    def _capped(self, op: Op) -> Op:
        if isinstance(op, ListNamespacesOp):
            self._check_enumerates()
        if isinstance(op, SearchOp) and not op.namespace_prefix:
            self._check_enumerates()
        if isinstance(op, SearchOp | ListNamespacesOp):
            return op._replace(limit=min(op.limit, self.most))
        return op

    def _check_enumerates(self) -> None:
        if not self.enumerates:
            raise NoNamespaces


class BentMemory(Sabotage, InMemoryStore):
    """An `InMemoryStore` that can be sabotaged."""


class BentSqlite(Sabotage, SqliteStore):
    """A `SqliteStore` that can be sabotaged."""


class BentAsyncSqlite(Sabotage, AsyncSqliteStore):
    """An `AsyncSqliteStore` that can be sabotaged."""


class BentPostgres(Sabotage, PostgresStore):
    """A `PostgresStore` that can be sabotaged."""


class BentAsyncPostgres(Sabotage, AsyncPostgresStore):
    """An `AsyncPostgresStore` that can be sabotaged."""


class BentCapped(Sabotage, CappedStore):
    """A third party's store that can be sabotaged."""


async def run(raw: Any, ops: list[Op]) -> list[Result]:
    """Run operations past an adapter, in one transaction where the store has one."""
    if isinstance(raw, SqliteStore | PostgresStore | CappedStore):
        return await asyncio.to_thread(raw.batch, ops)
    answer: list[Result] = await raw.abatch(ops)
    return answer
