"""What goes into a pgvector table: checked vectors, many rows at once, all or none."""

from __future__ import annotations

import math
from dataclasses import replace
from typing import Any

import pytest
from fix_pgvector import DIMENSIONS, EMBED, Connect, Index, ask, case_of, database_of, fill, store_of

from custody_sync.errors import InvalidInput, StoreRefused, StoreUnavailable
from custody_sync.testing.embedding import WordEmbedder


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


@pytest.mark.parametrize(
    ("vector", "message"),
    [([70_000.0] * DIMENSIONS, "not finite in half precision"), ([1e-9] * DIMENSIONS, "all zeros")],
)
async def test_half_precision_has_limits_of_its_own(
    connect: Connect, vector: list[float], message: str
) -> None:
    """What overflows or vanishes in sixteen bits is refused, as the database would or would not."""
    case = case_of(store_of(connect(), embed=lambda _: vector, vector_type="halfvec", index="hnsw"))
    with pytest.raises(InvalidInput, match=message):
        await case.put()


@pytest.mark.parametrize(
    ("options", "message"),
    [
        ({"vector_type": "bit"}, "neither 'vector' nor 'halfvec'"),
        ({"distance": "hamming"}, "'hamming' is none of cosine, l2, inner_product"),
        ({"dimensions": 3_072, "index": "hnsw"}, "vector_type='halfvec' takes 4,000"),
        ({"dimensions": 4_001, "index": "hnsw", "vector_type": "halfvec"}, "from 1 to 4,000"),
    ],
)
async def test_a_type_or_distance_that_is_none_is_refused(
    connect: Connect, options: dict[str, Any], message: str
) -> None:
    """What pgvector cannot do is said when the store is made, with what it could."""
    with pytest.raises(InvalidInput, match=message):
        store_of(connect(), **options)


async def test_an_index_of_3072_halves_serves(connect: Connect, database_uri: str) -> None:
    """The embeddings of today's large models fit an HNSW index as halfvec."""
    store = store_of(
        connect(), dimensions=3_072, embed=WordEmbedder(3_072), vector_type="halfvec", index="hnsw"
    )
    case = case_of(store)
    put = await case.put()
    assert [hit.entry.fact_id for hit in await case.search(put.fact.text or "", 1)] == [put.fact.fact_id]
    kind = "select format_type(atttypid, atttypmod) from pg_attribute where attname = 'embedding' limit 1"
    assert await ask(database_uri, kind) == [("halfvec(3072)",)]


@pytest.mark.parametrize("distance", ["cosine", "l2", "inner_product"])
@pytest.mark.parametrize("index", [None, "hnsw"])
async def test_by_every_distance_the_nearest_comes_first_with_the_highest_score(
    connect: Connect, distance: str, index: Index
) -> None:
    """A score is higher when nearer, whatever near means, and a removal is proved alike."""
    case = case_of(store_of(connect(), distance=distance, index=index))
    best = await case.put(case.fact("black coffee please"))
    await case.put(case.fact("the invoice is paid"))
    hits = await case.search("black coffee please", 2)
    assert hits[0].entry.fact_id == best.fact.fact_id
    assert (hits[0].score or 0.0) > (hits[1].score or 0.0)
    assert await case.said_gone(best.entries[0]) is False
    await case.delete(best)
    assert await case.said_gone(best.entries[0]) is True


async def test_another_distance_on_the_same_table_is_refused(connect: Connect) -> None:
    """An index that was made for one distance would be passed over by another in silence."""
    await case_of(store_of(connect(), index="hnsw")).put()
    other = store_of(connect(), index="hnsw", distance="l2")
    with pytest.raises(InvalidInput, match="for vector_cosine_ops, the store needs vector_l2_ops"):
        await other.find("any")
    assert await store_of(connect(), distance="l2").find("any") == []


async def test_a_batch_that_is_there_already_is_written_again(connect: Connect) -> None:
    """A retried batch, whole or in part, adds nothing, and what is new in it is held."""
    case = case_of(store_of(connect()))
    facts = [case.fact(f"note {n}") for n in range(6)]
    pairs = [(fact, case.label(fact)) for fact in facts]
    first = await case.store.put_many(pairs[:4])
    assert (await case.store.put_many(pairs))[:4] == first
    assert await case.store.put_many([*pairs, *pairs]) == [(label.key,) for _, label in (*pairs, *pairs)]
    assert len(await case.listed()) == 6
    assert await case.store.put_many([]) == []


async def test_a_table_with_row_level_security_takes_batches(connect: Connect, database_uri: str) -> None:
    """Where COPY is not allowed, the same rows go in as statements."""
    await case_of(store_of(connect())).put()
    role = f"tenant_{database_of(database_uri)}"
    for statement in (
        f"create role {role} login",
        f"grant select, insert, update, delete on facts to {role}",
        "alter table facts enable row level security",
        f"create policy all_rows on facts to {role} using (true) with check (true)",
    ):
        await ask(database_uri, statement)
    case = case_of(store_of(connect(database_uri.replace("//postgres@", f"//{role}@"))))
    assert len(await fill(case, 3)) == 3
    assert await ask(database_uri, "select count(*) from facts") == [(4,)]
    await ask(database_uri, f"drop owned by {role}")
    await ask(database_uri, f"drop role {role}")


async def test_a_blank_text_is_refused_before_anything_is_asked(connect: Connect) -> None:
    """Neither `put` nor `put_many` stores a text that nobody could search for."""
    pool = connect()
    case = case_of(store_of(pool))
    good, blank = case.fact("good"), case.fact(" \n", value="x")
    with pytest.raises(InvalidInput, match="text: must not be empty or blank"):
        await case.store.put(blank, case.label(blank))
    with pytest.raises(InvalidInput, match="blank"):
        await case.store.put_many([(fact, case.label(fact)) for fact in (good, blank)])
    assert pool.closed


async def test_a_new_label_leaves_text_and_vector_alone(connect: Connect, database_uri: str) -> None:
    """A label changes in its own columns; what is not there is refused and not made."""
    case = case_of(store_of(connect()))
    put = await case.put()
    look = "select text, embedding::text, ledger_id from facts"
    ((text, vector, _),) = await ask(database_uri, look)
    await case.store.relabel(put.entries[0], replace(put.label, ledger_id="moved"))
    assert await ask(database_uri, look) == [(text, vector, "moved")]
    await case.delete(put)
    with pytest.raises(StoreRefused, match="no such entry"):
        await case.store.relabel(put.entries[0], put.label)
    assert await case.listed() == []
