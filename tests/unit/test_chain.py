"""The event format: what is committed to, what stays after an erasure, what the hash covers."""

from __future__ import annotations

import copy
import hashlib
import json
from collections.abc import Callable
from datetime import timedelta
from typing import Any

import pytest
import rfc8785
from fix_ledger import START, Drafts

from custody_sync.ledger import Assert, Digest
from custody_sync.ledger.chain import GENESIS, commit, prepare, read_event, same_event, seal
from custody_sync.ledger.drafts import Draft
from custody_sync.model import Outcome, Provenance
from custody_sync.testing import ManualClock, SteppingIds

TIME = "2026-09-01T00:00:00.000000Z"


def drafts() -> Drafts:
    """Return a maker of drafts that is the same every time."""
    return Drafts(ManualClock(START))


def every_kind() -> dict[str, Draft]:
    """Return a full draft of every kind of event, no field left empty."""
    make = drafts()
    held = [("memories", "x-1"), ("agent", "x-2")]
    full = make.state(
        value={"n": 1e20, "s": ["a", None, True]},
        held=held,
        valid_to=START + timedelta(days=9),
        supersedes="f0",
        receipt_id="r-1",
        provenance=Provenance.CLAIMED,
    )
    return {
        "assert": Assert(
            event_id=full.event_id,
            fact=full.fact,
            placements=full.placements,
            kept=("agent",),
            request="d1",
        ),
        "retract": make.retract("f1", "wrong"),
        "confirm": make.confirm("f1", held, kept=("agent",), reason="checked"),
        "hold": make.hold("f1", "h-7", "court"),
        "release": make.release("f1", "h-7"),
        "forget": make.forget("f1", Digest("sha256", "ab" * 32), reason="asked", identity=True),
        "repair": make.repair("f9", "memories", "x-3", scope="a/b", stored_at=START, reason="outage"),
        "place": make.place("f1", held, scope="a/b"),
        "remove": make.remove(
            "f1", "memories", "x-1", Outcome.FAILED, scope="a/b", stored_at=START, detail="refused"
        ),
    }


def body_of(draft: Draft) -> tuple[dict[str, Any], str]:
    """Return a draft's body as a document, and its hash."""
    body, digest = seal(prepare(draft, SteppingIds()), seq=7, tx_time=TIME, prev="ab" * 32)
    document: dict[str, Any] = json.loads(body)
    return document, digest


@pytest.mark.parametrize("kind", every_kind())
def test_the_hash_is_sha256_over_the_rfc_8785_form(kind: str) -> None:
    """Anyone can recompute an event's hash from its body with any RFC 8785 implementation."""
    document, digest = body_of(every_kind()[kind])
    assert hashlib.sha256(rfc8785.dumps(document)).hexdigest() == digest
    assert (document["kind"], document["v"], document["seq"]) == (kind, 1, 7)


@pytest.mark.parametrize("kind", every_kind())
def test_an_erasable_field_stands_in_the_body_only_as_a_commitment(kind: str) -> None:
    """No value, text, identity, reason, scope or external id is in what can never be erased."""
    document, _ = body_of(every_kind()[kind])
    text = rfc8785.dumps(document).decode()
    for secret in ("acct:42", "plan", "1000000", '"org"', "x-1", "x-3", "a/b", "wrong", "checked", "court"):
        assert secret not in text


@pytest.mark.parametrize("kind", every_kind())
def test_a_commitment_is_over_salt_and_section(kind: str) -> None:
    """SHA-256(salt followed by the canonical section) is what the body says, for every section."""
    prepared = prepare(every_kind()[kind], SteppingIds())
    document, _ = body_of(every_kind()[kind])
    assert set(document["sealed"]) == set(prepared.sections)
    for name, section in prepared.sections.items():
        form = rfc8785.dumps(dict(section.fields))
        assert section.body.encode() == form
        assert document["sealed"][name] == hashlib.sha256(section.salt + form).hexdigest()
        assert len(section.salt) == 16


def places(document: Any, at: tuple[Any, ...] = ()) -> list[tuple[Any, ...]]:
    """Return the path of every leaf of a document."""
    if isinstance(document, dict) and document:
        return [path for key in document for path in places(document[key], (*at, key))]
    if isinstance(document, list) and document:
        return [path for i, item in enumerate(document) for path in places(item, (*at, i))]
    return [at]


def changed(document: Any, path: tuple[Any, ...], change: Callable[[Any], Any]) -> Any:
    """Return a copy with one leaf changed."""
    made = copy.deepcopy(document)
    parent = made
    for step in path[:-1]:
        parent = parent[step]
    parent[path[-1]] = change(parent[path[-1]])
    return made


@pytest.mark.parametrize("kind", every_kind())
def test_any_changed_field_changes_the_hash(kind: str) -> None:
    """No field of any kind of event can be altered, emptied or dropped under its hash."""
    document, digest = body_of(every_kind()[kind])
    paths = places(document)
    assert len(paths) >= 10
    for path in paths:
        for change in (lambda leaf: f"{leaf}!", lambda leaf: None if leaf is not None else 0):
            altered = changed(document, path, change)
            assert hashlib.sha256(rfc8785.dumps(altered)).hexdigest() != digest, path
    for name in document:
        fewer = {key: value for key, value in document.items() if key != name}
        assert hashlib.sha256(rfc8785.dumps(fewer)).hexdigest() != digest, name


@pytest.mark.parametrize("kind", every_kind())
def test_an_event_reads_back_as_it_was_drafted(kind: str) -> None:
    """A stored body and its sections give the event; the draft again is recognised as the same."""
    draft = every_kind()[kind]
    prepared = prepare(draft, SteppingIds(1))
    body, digest = seal(prepared, seq=1, tx_time=TIME, prev=GENESIS)
    stored = {name: section.body for name, section in prepared.sections.items()}
    event = read_event(body, digest, stored)
    assert (event.event_id, event.fact_id, event.kind.value) == (draft.event_id, draft.fact_id, kind)
    assert (event.prev, event.hash, event.tx_time) == (GENESIS, digest, START)
    again = prepare(draft, SteppingIds(2))
    assert same_event(again, event)
    assert same_event(again, read_event(body, digest, dict.fromkeys(stored)))


@pytest.mark.parametrize("kind", every_kind())
def test_another_draft_under_the_same_event_id_is_not_the_same(kind: str) -> None:
    """What differs in anything but the salts is another event."""
    draft = every_kind()[kind]
    prepared = prepare(draft, SteppingIds(1))
    body, digest = seal(prepared, seq=1, tx_time=TIME, prev=GENESIS)
    event = read_event(body, digest, {name: section.body for name, section in prepared.sections.items()})
    others = [other for name, other in every_kind().items() if name != kind]
    for other in others:
        assert not same_event(prepare(other, SteppingIds(1)), event)
    for path in [("actor",), ("fact_id",), ("receipt_id",)]:
        document = changed(json.loads(body), path, lambda leaf: f"{leaf}!")
        altered = read_event(rfc8785.dumps(document).decode(), digest, {})
        assert not same_event(prepared, altered)


FINAL = {
    "assert": "b6cc4d447b362465a8bcbb2c4f7968987c16d93ebbf91d10fe0da4c47d09f0b5",
    "retract": "ce4a6075f36aa878d41f60dd0efd39b622c5b5ce5d9e9c340275eb576bc3e9a2",
    "confirm": "d64d94c2b4857b87bea0206619379aaf6d1fa0e8ef69e49ec86e58881a357149",
    "hold": "0c30ba29f015b58ad159af37a5e4e81c931807156f79b303cc96c8a9239451f2",
    "release": "26985cae5ddc9f824b3aec859aa8d3e0c590e28fac51ece9c0402eae8bf93f6a",
    "forget": "980f0a65566f35746f56e37cb911c7b41a61fba3ab963627e6157e0b17bcf3bb",
    "repair": "ed0ffa8d3853e2e927dc4da100ee4a9bdae80347fab34db1953eb8c49be7b6a3",
    "place": "62a857f0751bfd60ce6788def68bf88e245a505ab6063d75eb7506c9b96c1a0d",
    "remove": "46447d90fcaa8f7ad45fa5961d23dfd132ebae8a89d77d1799364121ed4bdfc6",
}
"""Hashes of one event of every kind, as the first release writes them."""


@pytest.mark.parametrize("kind", FINAL)
def test_the_format_of_version_1_is_final(kind: str) -> None:
    """The same event has the same hash in every later version; a new format needs a new `v`."""
    assert body_of(every_kind()[kind])[1] == FINAL[kind]


def test_equal_content_gives_unequal_commitments() -> None:
    """Salts keep two facts with one value from being recognised as equal, before and after an erasure."""
    make = drafts()
    ids = SteppingIds()
    one, two = (prepare(make.state(value="pro"), ids).sections["content"] for _ in range(2))
    assert one.body == two.body
    assert one.commitment != two.commitment
    assert one.commitment == commit(one.body, one.salt)


def test_a_prepared_draft_is_safe_from_the_callers_hands() -> None:
    """A value that the caller changes after the append began does not change what is recorded."""
    value: dict[str, Any] = {"tags": ["a"]}
    prepared = prepare(drafts().state(value=value, text="t"), SteppingIds())
    value["tags"].append("b")
    assert prepared.sections["content"].fields["value"] == {"tags": ["a"]}
    assert prepared.sections["content"].body == '{"text":"t","value":{"tags":["a"]}}'
