"""What is uploaded for a fact is its own, and gives the text back as it was."""

from __future__ import annotations

from datetime import UTC, datetime

import pytest
from hypothesis import given
from hypothesis import strategies as st

from custody_sync.adapters._cognee_rows import (
    ends_as_put,
    escaped,
    fact_tag,
    read_chunk,
    read_row,
    read_text,
    written,
)
from custody_sync.model import Label, Provenance

NOW = datetime(2026, 11, 30, tzinfo=UTC)
LINES = st.text(st.sampled_from("a[] \r\n\u2028é"), max_size=30)


def label(generation: str = "0a1b") -> Label:
    """Return a label."""
    return Label(
        ledger_id="ledger",
        fact_id="fact-1",
        space="user:1",
        stored_at=NOW,
        generation=generation,
        actor="agent",
        provenance=Provenance.ATTESTED,
        valid_from=NOW,
    )


def as_cognee_keeps(raw: bytes) -> bytes:
    """Return what 1.6.5 serves of an upload: every line break is LF."""
    return raw.replace(b"\r\n", b"\n").replace(b"\r", b"\n")


@given(text=LINES)
def test_a_text_comes_back_to_the_byte(text: str) -> None:
    """Whatever its line breaks are, a text is the same after Cognee made all of them LF."""
    assert read_text(as_cognee_keeps(written(text, label()))) == text


@given(text=LINES)
def test_what_is_uploaded_has_one_kind_of_line_break(text: str) -> None:
    """Cognee changes nothing of an upload, so equal bytes stay equal and a chunk is what was sent."""
    raw = written(text, label())
    assert as_cognee_keeps(raw) == raw


def test_equal_texts_are_other_bytes() -> None:
    """Two entries never have equal bytes, not even two generations of one fact."""
    assert written("the same", label("0a")) != written("the same", label("0b"))


def test_a_text_that_ends_like_ours_keeps_its_end() -> None:
    """Only the last line is taken off, however the text itself ends."""
    text = "quoted:\n\n[fact fact-1.0a1b]"
    assert read_text(written(text, label())) == text


@pytest.mark.parametrize(
    "raw",
    [
        b"one\ntwo\n\n[fact f.0 breaks=7c]",
        b"one\n\n[fact f.0 breaks=999999999c]",
        b"\xff\xfe",
    ],
)
def test_an_altered_file_gives_no_text(raw: bytes) -> None:
    """Line breaks that do not fit, or bytes that are no text, are not made into one."""
    assert read_text(raw) is None


def test_a_file_of_somebody_else_is_read_as_it_is() -> None:
    """What has no line of ours is a text as it stands."""
    assert read_text(b"notes\r\n") == "notes\r\n"


@pytest.mark.parametrize("space", ["a.b", "two words", "é", "e\u0301", "a%2Eb", "A", "a/b\\c"])
def test_a_dataset_name_has_nothing_that_cognee_refuses(space: str) -> None:
    """A name has no space, no dot and nothing but ASCII."""
    name = escaped(space)
    assert name.isascii()
    assert not set(name) & {" ", "."}


def test_no_two_spaces_share_a_dataset() -> None:
    """Escaping keeps names apart."""
    spaces = ["a.b", "a%2Eb", "a b", "a+b", "a%20b", "A.b", "é", "e\u0301", "user:1", "user%3A1"]
    assert len(set(map(escaped, spaces))) == len(spaces)


def test_naive_instants_are_utc() -> None:
    """1.6.5 lists naive instants; every other form is made UTC, and what is none reads as none."""
    raw = {"id": "d", "externalMetadata": None}
    naive = read_row({**raw, "createdAt": "2026-11-29T17:45:39.087618"})
    aware = read_row({**raw, "createdAt": "2026-11-29T18:45:39.087618+01:00"})
    bad = read_row({**raw, "createdAt": "yesterday"})
    assert naive is not None
    assert aware is not None
    assert bad is not None
    assert naive.created_at == aware.created_at == datetime(2026, 11, 29, 17, 45, 39, 87618, tzinfo=UTC)
    assert bad.created_at is None


def test_rows_and_chunks_without_an_id_are_none() -> None:
    """What cannot be addressed, or has metadata that is no object, is not read; none reads as empty."""
    assert read_row({"name": "x"}) is None
    assert read_chunk({"text": "x"}) is None
    for said in ("[1", "[1]", 7, ["x"]):
        assert read_chunk({"document_id": "d", "external_metadata": said}) is None
        assert read_row({"id": "d", "externalMetadata": said}) is None
    chunk = read_chunk({"document_id": "d", "external_metadata": "null"})
    assert chunk is not None
    assert not chunk.metadata


def test_a_row_without_its_tag_is_marked() -> None:
    """An id says whether a tag leads to the chunks: of a row that others wrote, none does."""
    meta = label().to_metadata()
    ours = read_row({"id": "d", "externalMetadata": {**meta, "node_set": [fact_tag("fact-1")]}})
    bare = read_row({"id": "d", "externalMetadata": meta})
    assert ours is not None
    assert bare is not None
    assert ours.external_id == "d"
    assert bare.external_id == "d~untagged"


@pytest.mark.parametrize(("index", "key", "whole"), [(0, "f.0", True), (1, "f.0", False), (0, "f.1", False)])
def test_only_a_whole_chunk_is_a_text(index: int, key: str, whole: bool) -> None:
    """A part of a longer text, or one with another's last line, is not shown as an entry's text."""
    chunk = {"text": "said\n\n[fact f.0]", "chunk_index": index}
    assert ends_as_put(chunk, key) is whole
