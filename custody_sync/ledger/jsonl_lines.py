"""The lines of a JSONL ledger: a header, then one exported event a line in its RFC 8785 form.

A line is read back byte for byte or not at all, so that no change to a file stays unseen. Lines
end at the byte 0x0A alone: a text may hold U+2028 and U+0085, which other readers split at.
"""

from __future__ import annotations

import sqlite3
from collections.abc import Iterable, Iterator, Mapping

from custody_sync.canonical import canonical_plain, parse
from custody_sync.errors import LedgerDamaged, LedgerTooNew
from custody_sync.errors.base import throw
from custody_sync.ledger.chain import SECTIONS
from custody_sync.ledger.stored import Stored, read_stored

FORMAT = 1
END = b"\n"


def header_line(ledger_id: str) -> bytes:
    """Return the first line of a ledger's file."""
    header = {"custody-sync": "ledger", "format": FORMAT, "ledger_id": ledger_id}
    return canonical_plain(header).encode() + END


def read_header(line: bytes, name: str) -> str:
    """Return the ledger id that a first line states.

    Raises:
        LedgerDamaged: it is no header of a ledger.
        LedgerTooNew: a later version wrote it.
    """
    try:
        header = parse(line)
        kind, version, ledger_id = header["custody-sync"], header["format"], header["ledger_id"]
        ours = isinstance(ledger_id, str) and header_line(ledger_id) == line
    except (KeyError, RecursionError, TypeError, ValueError):
        throw(LedgerDamaged(name=name, cause="its first line is no header of a JSONL ledger"))
    if kind == "ledger" and type(version) is int and version > FORMAT:
        throw(LedgerTooNew(name=name, found=version, known=FORMAT))
    if not ours:
        throw(LedgerDamaged(name=name, cause="its first line is no header of a JSONL ledger"))
    return str(ledger_id)


def read_line(line: bytes) -> Stored:
    """Read one event's line, without its end.

    Raises:
        ValueError: it is not what was written; says why.
    """
    try:
        row = parse(line)
    except (RecursionError, ValueError):
        raise ValueError("its line is no JSON") from None
    stored = read_stored(row)
    sections = {name: (section.body, section.salt) for name, section in stored.sections.items()}
    if not stored.hash.isascii() or _line(stored.body, stored.hash, sections) != line + END:
        raise ValueError("its line is not in the form it was written in")
    return stored


def lines_after(conn: sqlite3.Connection, seq: int) -> Iterator[bytes]:
    """Yield the lines of all events after one, as they have to stand in the file."""
    query = (
        "SELECT e.body, e.hash, s.content, s.content_salt, s.identity, s.identity_salt, s.refs, s.refs_salt "
        "FROM events e LEFT JOIN sealed s ON s.seq = e.seq WHERE e.seq > ? ORDER BY e.seq"
    )
    for body, digest, *pairs in conn.execute(query, (seq,)):
        texts, salts = pairs[::2], pairs[1::2]
        found = zip(SECTIONS, texts, salts, strict=True)
        yield _line(body, digest, {name: (text, salt) for name, text, salt in found if text is not None})


def _line(body: str, digest: str, sections: Mapping[str, tuple[str, bytes]]) -> bytes:
    sealed = ",".join(
        [f'"{name}":{{"body":{text},"salt":"{salt.hex()}"}}' for name, (text, salt) in sections.items()]
    )
    return f'{{"event":{body},"hash":"{digest}","sealed":{{{sealed}}}}}\n'.encode()


def in_pieces(lines: Iterable[bytes], size: int = 1 << 20) -> Iterator[bytes]:
    """Join lines to pieces worth a system call."""
    piece = bytearray()
    for line in lines:
        piece += line
        if len(piece) >= size:
            yield bytes(piece)
            piece.clear()
    if piece:
        yield bytes(piece)
