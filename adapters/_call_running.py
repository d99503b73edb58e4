"""Running a caller's callables: plain ones in threads, asynchronous ones in the caller's loop."""

from __future__ import annotations

import inspect
from collections.abc import AsyncIterable, AsyncIterator, Awaitable, Callable, Iterable
from functools import partial
from itertools import islice
from typing import Any, TypeAlias, TypeVar

from custody_sync.adapters._failures import describe, failure_of, status_of
from custody_sync.adapters._shared import WorkerThreads
from custody_sync.errors import CustodyError, InvalidStore, StoreUnavailable

T = TypeVar("T")
Call: TypeAlias = Callable[[], Any]
Tells: TypeAlias = Callable[[Exception], bool]

PAGE = 500


class Running:
    """Runs callables and turns what they raise into our errors, without its text.

    Args:
        store: The store's name, for errors.
        threads: Where plain callables run.
    """

    def __init__(self, store: str, threads: WorkerThreads) -> None:
        self._store = store
        self._threads = threads

    async def run(
        self,
        operation: str,
        call: Call,
        finish: Callable[[Any], T],
        *,
        most: int = PAGE,
        nothing: Tells = lambda _: False,
    ) -> T:
        """Call, and finish what came of it in the same place: a generator runs its owner's code, too.

        Args:
            operation: what it is for.
            call: a plain or an asynchronous callable.
            finish: makes our answer of what it gave.
            most: how many results an asynchronous generator is asked for.
            nothing: tells of an error of the call, not of finishing, that it means None.

        Raises:
            InvalidStore: what it gave has not the form it should have.
            StoreError: it failed; it may have taken effect unless an HTTP status says that it did not.
        """
        try:
            return await self._carry_out(call, finish, most, nothing)
        except CustodyError:
            raise
        except (Exception, SystemExit) as error:
            # An exit out of a task would end the loop, and with it what everybody else waits for.
            failure = self._failure(operation, error)
        raise failure from None

    async def pages(self, operation: str, call: Call, read: Callable[[object], T]) -> AsyncIterator[list[T]]:
        """Yield what a listing gives, a page at a time, so that it is never in memory as a whole."""
        in_loop = is_async(call)
        rows: Any = call() if inspect.isasyncgenfunction(unwrapped(call)) else None
        if rows is None:
            rows = await self.run(operation, call, self._rows)

        def read_all(page: Any) -> list[T]:
            return [read(one) for one in page]

        while True:
            if isinstance(rows, AsyncIterator):
                page = await self.run(operation, partial(_several, rows, PAGE), read_all)
            elif in_loop:
                page = read_all(islice(rows, PAGE))
            else:
                page = await self.run(operation, lambda: list(islice(rows, PAGE)), read_all)
            if not page:
                return
            yield page

    def some(self, given: Any, most: int) -> list[Any]:
        """Return at most so many results of what a call gave; of a generator no more are asked for.

        Raises:
            InvalidStore: it gave something else than results, None above all.
        """
        rows = self._rows(given)
        found = list(islice(rows, most))
        if inspect.isgenerator(rows):
            rows.close()
        return found

    # --- inside ----------------------------------------------------------------------------

    async def _carry_out(self, call: Call, finish: Callable[[Any], T], most: int, nothing: Tells) -> T:
        def whole() -> tuple[Any, bool]:
            try:
                given = _called(call, nothing)
                is_to_come = inspect.isawaitable(given) or isinstance(given, AsyncIterable)
                return (given, True) if is_to_come else (finish(given), False)
            except StopIteration:
                # No future takes it, so that whoever waits for one would wait for ever.
                cause = StopIteration.__name__
            except Exception:
                raise
            except BaseException as error:
                # Out of a task it would end the loop, and with it what everybody else waits for.
                cause = type(error).__name__
            raise StoreUnavailable(store=self._store, operation="call", cause=cause)

        given, is_to_come = whole() if is_async(call) else await self._threads.run(whole)
        if not is_to_come:
            done: T = given
            return done
        if isinstance(given, Awaitable):
            given = await _awaited(given, nothing)
        return finish(await _several(given, most) if isinstance(given, AsyncIterable) else given)

    def _failure(self, operation: str, error: BaseException) -> CustodyError:
        if isinstance(error, Exception) and status_of(error) is not None:
            return failure_of(self._store, operation, error)
        return StoreUnavailable(store=self._store, operation=operation, cause=describe(error))

    def _rows(self, given: Any) -> Any:
        if isinstance(given, AsyncIterable):
            return aiter(given)
        if isinstance(given, str | bytes | dict) or not isinstance(given, Iterable):
            kind = "None" if given is None else f"a {type(given).__name__}"
            problem = f"it gave {kind} where a list of results belongs, an empty one if there are none"
            raise InvalidStore(store=self._store, problem=problem)
        return iter(given)


def _called(call: Call, nothing: Tells) -> Any:
    try:
        return call()
    except Exception as error:
        if not nothing(error):
            raise
    return None


async def _awaited(given: Awaitable[Any], nothing: Tells) -> Any:
    try:
        return await given
    except Exception as error:
        if not nothing(error):
            raise
    return None


async def _several(rows: AsyncIterable[Any], most: int) -> list[Any]:
    found: list[Any] = []
    async for one in rows:
        found.append(one)
        if len(found) >= most:
            break
    return found


def is_async(function: Callable[..., Any]) -> bool:
    """Tell whether a call only makes a coroutine or an asynchronous generator, so that it blocks nobody."""
    plain = unwrapped(function)
    called = getattr(plain, "__call__", None)  # noqa: B004  # an object may have an asynchronous one
    return any(inspect.iscoroutinefunction(one) or inspect.isasyncgenfunction(one) for one in (plain, called))


def unwrapped(function: Callable[..., Any]) -> Callable[..., Any]:
    """Return what a `partial` calls in the end."""
    while isinstance(function, partial):
        function = function.func
    return function


__all__ = ["Running", "is_async", "unwrapped"]
