"""What goes into a pgvector table: checked vectors, many rows at once, all or none."""

from __future__ import annotations

import math

import pytest
from fix_pgvector import DIMENSIONS, EMBED, Connect, ask, case_of, store_of

from custody_sync.errors import InvalidInput, StoreRefused, StoreUnavailable


@pytest.mark.parametrize(
    ("vector", "message"),
    [
        ([1.0, 2.0, 3.0], "embedding: has 3 numbers, the table's vectors have 32"),
        ([], "has 0 numbers, the table's vectors have 32"),
        ([0.0] * DIMENSIONS, "all zeros"),
        ([1e-60] * DIMENSIONS, "all zeros"),
        ([math.nan] * DIMENSIONS, "not finite"),
        ([math.inf] * DIMENSIONS, "not finite"),
        ([1e39] * DIMENSIONS, "not finite"),
    ],
)
@pytest.mark.parametrize("is_async", [False, True])
async def test_a_bad_vector_is_refused_before_anything_is_written(
    connect: Connect, database_uri: str, vector: list[float], message: str, is_async: bool
) -> None:
    """One sentence, with both lengths where it is about lengths, and no row, in `put` and in `put_many`."""

    async def later(text: str) -> list[float]:
        return vector if "bad" in text else EMBED(text)

    def at_once(text: str) -> list[float]:
        return vector if "bad" in text else EMBED(text)

    case = case_of(store_of(connect(), embed=later if is_async else at_once))
    await case.put(case.fact("good"))
    with pytest.raises(InvalidInput, match=message):
        await case.put(case.fact("bad"))
    facts = [case.fact("good"), case.fact("bad")]
    with pytest.raises(InvalidInput, match=message):
        await case.store.put_many([(fact, case.label(fact)) for fact in facts])
    assert await ask(database_uri, "select text from facts") == [("good",)]


async def test_an_embedder_may_return_any_sequence_of_numbers(connect: Connect) -> None:
    """Tuples, ranges of numbers and arrays are read alike; a failing embedder is named without its text."""
    case = case_of(store_of(connect(), embed=lambda text: tuple(EMBED(text))))
    put = await case.put()
    assert len(await case.served(put)) == 1

    def broken(text: str) -> list[float]:
        raise RuntimeError(f"the model choked on {text}")

    failing = case_of(store_of(connect(), embed=broken))
    with pytest.raises(StoreUnavailable, match=r"embed failed for now \(RuntimeError\)") as caught:
        await failing.put(failing.fact("Mallory's secret"))
    assert "Mallory" not in repr(caught.value.to_dict())


async def test_put_many_is_all_or_nothing(connect: Connect, database_uri: str) -> None:
    """A row the database refuses takes the whole call with it."""
    case = case_of(store_of(connect()))
    await case.put()
    await ask(database_uri, "alter table facts add check (text <> 'refused')")
    facts = [case.fact("one"), case.fact("refused"), case.fact("two")]
    with pytest.raises(StoreRefused, match="CheckViolation 23514"):
        await case.store.put_many([(fact, case.label(fact)) for fact in facts])
    assert len(await case.listed()) == 1
