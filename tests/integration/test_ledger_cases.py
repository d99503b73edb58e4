"""The cases C1 to C9 of the case book, on a real file."""

from __future__ import annotations

import hashlib
from datetime import timedelta
from pathlib import Path

import pytest
from fix_ledger import Book, day, files_of, open_book

from custody_sync.errors import InvalidInput
from custody_sync.ledger import Digest
from custody_sync.model import EventKind, Provenance

KEY = b"a key of the digests, kept elsewhere"


async def test_c1_as_of_filters_by_space_or_by_what_is_said(book: Book) -> None:
    """C1: facts come in write order, filtered by space or by subject and predicate."""
    await book.add("acct:42", "plan", "pro")
    await book.add("acct:42", "owner", "dana")
    await book.add("acct:42", "plan", "trial", space="user:me")
    assert await book.values(space="org") == ["pro", "dana"]
    plans = await book.ledger.as_of(subject="acct:42", predicate="plan")
    assert [fact.space for fact in plans] == ["org", "user:me"]
    assert await book.ledger.spaces() == ["org", "user:me"]


async def test_c2_a_replacement_covers_from_its_own_start(book: Book) -> None:
    """C2: intervals are half-open: at the instant a replacement starts, only it is believed."""
    book.at(day(1, month=8))
    pro = await book.add(value="pro", valid_from=day(1, month=8))
    book.at(day(10))
    await book.add(value="enterprise", valid_from=day(10), supersedes=pro)
    assert await book.values(valid_at=day(15, month=8)) == ["pro"]
    assert await book.values(valid_at=day(10)) == ["enterprise"]
    assert await book.values(valid_at=day(10) - timedelta(microseconds=1)) == ["pro"]


async def test_c3_what_the_ledger_did_not_know_yet_is_not_read_back_into_the_past(book: Book) -> None:
    """C3: valid time and transaction time are two questions."""
    book.at(day(5))
    await book.add("deal:7", "status", "signed", valid_from=day(1))
    assert await book.values(valid_at=day(3), tx_at=day(3)) == []
    assert await book.values(valid_at=day(3)) == ["signed"]


async def test_c4_a_retraction_keeps_what_was_believed_before_it(book: Book) -> None:
    """C4: a retracted fact is not believed now, was believed then, and its history says why."""
    fact_id = await book.add("acct:42", "owner", "mallory", receipt_id="r-1")
    book.at(day(2))
    await book.append(book.retract(fact_id, "impostor"))
    assert await book.values() == []
    assert await book.values(valid_at=day(1, 12), tx_at=day(1, 12)) == ["mallory"]
    history = await book.ledger.history(fact_id)
    assert [event.kind for event in history] == [EventKind.ASSERT, EventKind.RETRACT]
    assert (history[0].receipt_id, history[1].reason) == ("r-1", "impostor")


async def test_c5_retracting_a_replacement_gives_its_target_back(book: Book) -> None:
    """C5: what a retracted link covered is believed again and can be superseded anew."""
    pro = await book.add(value="pro")
    book.later(hours=1)
    free = await book.add(value="free", supersedes=pro)
    assert await book.values() == ["free"]
    await book.append(book.retract(free))
    assert await book.values() == ["pro"]
    await book.add(value="enterprise", supersedes=pro)
    assert await book.values() == ["enterprise"]


async def test_c6_a_bad_target_is_named_and_nothing_is_written(book: Book) -> None:
    """C6: unknown, covered, retracted and too early are four errors, and the file stays as it is."""
    covered = await book.add("a")
    await book.add("a", supersedes=covered)
    retracted = await book.add("b")
    await book.append(book.retract(retracted))
    plain = await book.add("c")
    before = files_of(book.path.parent)
    early = book.clock.now() - timedelta(microseconds=1)
    drafts = [
        book.state("a", supersedes="f-unknown"),
        book.state("a", supersedes=covered),
        book.state("b", supersedes=retracted),
        book.state("c", supersedes=plain, valid_from=early),
    ]
    found = [await book.refused(draft) for draft in drafts]
    assert found == ["unknown_fact", "already_covered", "already_retracted", "starts_too_early"]
    after = files_of(book.path.parent)
    assert {name: after[name] for name in after if not name.endswith("-shm")} == {
        name: before[name] for name in before if not name.endswith("-shm")
    }


async def test_c7_a_claimed_fact_waits_for_its_confirmation(book: Book) -> None:
    """C7: a claimed fact is hidden until confirmed, and stays hidden as of a time before that."""
    fact_id = await book.add(value="pro", provenance=Provenance.CLAIMED)
    assert await book.values() == []
    assert await book.values(include_claimed=True) == ["pro"]
    book.at(day(2))
    await book.append(book.confirm(fact_id))
    (fact,) = await book.ledger.as_of()
    assert (fact.value, fact.confirmed, fact.provenance) == ("pro", True, Provenance.CLAIMED)
    assert await book.values(tx_at=day(1, 12)) == []
    assert await book.values(tx_at=day(1, 12), include_claimed=True) == ["pro"]


async def test_c8_a_forgotten_value_reads_as_forgotten(book: Book) -> None:
    """C8: as-of drops a forgotten fact; before the forget it stands beside the others without value."""
    ssn = await book.add("user:7", "ssn", "123-45-6789")
    await book.add("user:7", "name", "Ada")
    book.at(day(2))
    await book.append(book.forget(ssn, reason="asked to"))
    kinds = [event.kind for event in await book.ledger.history(ssn)]
    assert kinds == [EventKind.ASSERT, EventKind.FORGET]
    assert await book.values() == ["Ada"]
    before = await book.ledger.as_of(tx_at=day(1, 12))
    assert [(fact.subject, fact.value, fact.forgotten) for fact in before] == [
        ("user:7", None, True),
        ("user:7", "Ada", False),
    ]
    assert before[0].text is None


async def test_c9_digests_depend_on_the_key_and_only_on_it(tmp_path: Path) -> None:
    """C9: two keys, two digests, neither the plain one; one key, one digest in any ledger."""
    books = [
        await open_book(tmp_path / f"{i}.db", forget_key=key)
        for i, key in enumerate([KEY, KEY, b"another key, as long as that"])
    ]
    one, same, other = (book.ledger.digest("123-45-6789", None) for book in books)
    plain = books[0].ledger.digest("123-45-6789", "sha256")
    assert one == same
    assert one is not None
    assert other is not None
    assert plain == Digest("sha256", hashlib.sha256(b'"123-45-6789"').hexdigest())
    assert len({one.hex, other.hex, plain.hex}) == 3
    assert (one.alg, books[0].ledger.digest("x", "none")) == ("hmac-sha256", None)
    for book in books:
        await book.ledger.close()


async def test_c9_a_forget_keeps_the_digest_it_was_given_and_no_other(book: Book) -> None:
    """C9: the event carries the digest by choice; without a key the default keeps nothing."""
    kept, bare = await book.add("a"), await book.add("b")
    await book.append(book.forget(kept, book.ledger.digest("pro", "sha256")))
    await book.append(book.forget(bare, book.ledger.digest("pro", None)))
    expected = {"alg": "sha256", "hex": hashlib.sha256(b'"pro"').hexdigest()}
    digests = [(await book.ledger.history(fact_id))[-1].data["digest"] for fact_id in (kept, bare)]
    assert digests == [expected, None]


async def test_c9_a_digest_needs_a_known_algorithm_and_its_key(book: Book, tmp_path: Path) -> None:
    """C9: hmac without a key, an unknown name and a short key are one sentence each."""
    with pytest.raises(InvalidInput, match="needs the ledger opened with a forget_key"):
        book.ledger.digest("x", "hmac-sha256")
    with pytest.raises(InvalidInput, match="must be hmac-sha256, sha256 or none"):
        book.ledger.digest("x", "md5")
    for key in (b"short", "sixteen characters and more"):
        with pytest.raises(InvalidInput, match="at least 16 bytes"):
            await open_book(tmp_path / "k.db", forget_key=key)
    assert not (tmp_path / "k.db").exists()


async def test_c9_a_digest_of_a_big_float_read_back_is_the_same(book: Book) -> None:
    """C9: a value read from the ledger can be digested like the one that was written."""
    fact_id = await book.add(value={"n": 1e20, "list": [1.5, -0.0, 2**53 - 1]})
    fact = await book.ledger.get(fact_id)
    assert fact is not None
    assert book.ledger.digest(fact.value, "sha256") == book.ledger.digest(
        {"n": 1e20, "list": [1.5, -0.0, 2**53 - 1]}, "sha256"
    )
    again = await book.add("again", value=fact.value)
    assert (await book.ledger.get(again)).value == fact.value  # type: ignore[union-attr]  # just written
