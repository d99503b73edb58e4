"""Fuzzing: how much of it, what it may end in, and how what is valid is broken.

CI runs a fixed set of small size. `CUSTODY_SYNC_FUZZ=N` runs N times as much of what a seed draws, which
is printed; `CUSTODY_SYNC_FUZZ_SEED` draws the same again. `CUSTODY_SYNC_FUZZ_REPORT` names a file that
gets one line of JSON per test: how often its body was executed, and from which seed.
"""

from __future__ import annotations

import copy
import functools
import json
import os
import random
import resource
import signal
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from typing import Any, TypeVar

from hypothesis import HealthCheck, Phase, given, settings
from hypothesis import seed as seeded
from hypothesis import strategies as st

from custody_sync import errors
from custody_sync.errors import CustodyError

TIMES = int(os.environ.get("CUSTODY_SYNC_FUZZ", "1"))
SEED = int(os.environ.get("CUSTODY_SYNC_FUZZ_SEED") or random.SystemRandom().randrange(2**32))
REPORT = os.environ.get("CUSTODY_SYNC_FUZZ_REPORT")
IS_CI = TIMES <= 1 and "CUSTODY_SYNC_FUZZ_SEED" not in os.environ

HANGS = 300
"""Seconds after which an execution hangs; the slowest take a fraction of one on a busy machine."""
SWELLS = 200_000
"""Kilobytes that no execution may need beyond what the process had: what is read has a few thousand."""

CODES = {getattr(errors, name).code for name in errors.__all__ if hasattr(getattr(errors, name), "code")}
"""The codes that programs may rely on."""

F = TypeVar("F", bound=Callable[..., None])


def fuzzed(examples: int, **drawn: st.SearchStrategy[Any]) -> Callable[[F], F]:
    """Run a test on so many examples in CI, and on a multiple of that in a soak; count and bound each."""

    def decorate(test: F) -> F:
        count = 0

        @functools.wraps(test)
        def once(*args: Any, **kwargs: Any) -> None:
            nonlocal count
            count += 1
            with bounded():
                test(*args, **kwargs)

        phases = [Phase.generate, Phase.shrink] if IS_CI else [Phase.generate, Phase.target, Phase.shrink]
        run = settings(
            max_examples=examples * max(TIMES, 1),
            derandomize=IS_CI,
            database=None,
            deadline=None,
            phases=phases,
            print_blob=True,
            suppress_health_check=[HealthCheck.too_slow, HealthCheck.data_too_large],
        )(given(**drawn)(once))
        if not IS_CI:
            run = seeded(SEED)(run)

        @functools.wraps(run)
        def reported(*args: Any, **kwargs: Any) -> None:
            nonlocal count
            count, passed = 0, False
            if not IS_CI:
                print(f"CUSTODY_SYNC_FUZZ_SEED={SEED} CUSTODY_SYNC_FUZZ={TIMES}", flush=True)
            try:
                run(*args, **kwargs)
                passed = True
            finally:
                _report(f"{test.__module__.rpartition('.')[2]}::{test.__name__}", count, passed)

        return reported  # type: ignore[return-value]  # pytest sees the same signature through it

    return decorate


def _report(test: str, executions: int, passed: bool) -> None:
    if REPORT:
        seed = None if IS_CI else SEED
        line = json.dumps({"test": test, "executions": executions, "seed": seed, "passed": passed})
        with open(REPORT, "a", encoding="utf-8") as file:
            file.write(line + "\n")


@contextmanager
def bounded() -> Iterator[None]:
    """Let nothing hang, and nothing take memory out of proportion."""

    def hangs(_signal: int, _frame: object) -> None:
        raise AssertionError(f"it is not done after {HANGS} s")

    before = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss
    usual = signal.signal(signal.SIGALRM, hangs)
    # Whoever else watches over the test has the timer back afterwards.
    theirs, _ = signal.setitimer(signal.ITIMER_REAL, HANGS)
    try:
        yield
    finally:
        signal.setitimer(signal.ITIMER_REAL, 0)
        signal.signal(signal.SIGALRM, usual)
        signal.setitimer(signal.ITIMER_REAL, theirs)
    grown = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss - before
    assert grown < SWELLS, f"it took {grown} KB"


def refused(error: CustodyError, *never: str) -> None:
    """Hold an error to what callers are promised: a stable code, one sentence, plain JSON, no content."""
    assert error.code in CODES, error.code
    document = json.dumps(error.to_dict())
    said = f"{error}{error!r}{document}"
    assert str(error), "it says nothing"
    assert "codec can't" not in said, "it words an error of Python"
    for secret in never:
        assert secret not in said, f"it quotes {secret}"


# --- what is drawn ---------------------------------------------------------------------------

ODD = st.sampled_from(
    [
        "", " ", ".", "..", "../..", "~", "/", "\\", "%2e%2e%2f", "%00", "a\tb", "a\nb", "a\r\nb", "\x1b[2J",
        "\u202eevil\u2066", "\u2028\u2029\x85", "\ufeffa", "e\u0301", "\U0001f600", "'; DROP TABLE events;--",
        '"', "'", "{", "}", "{space}", "{0.__class__}", "[red]", "erased~1", "int:7", "uuid:x", "null", "NaN",
        "1e999", "-0", "9" * 400, "a" * 1001,
    ]
)  # fmt: skip
"""Strings that mean something somewhere."""
TEXTS = ODD | st.text(max_size=20)
HUGE = st.sampled_from([2**53, 2**63, 2**64, 10**30, -(2**63) - 1, 10**400, 1e308, -1e308, 5e-324])
NESTED = st.sampled_from([3, 99, 101, 900, 3000, 100_000])
NAUGHTY = st.text(st.characters(codec=None) | st.sampled_from("\x00\ud800\udfff"), max_size=8)
"""Strings that no database keeps: NUL and halves of a character among them."""
SCALARS = (
    st.none() | st.booleans() | st.integers(-(10**6), 10**6) | HUGE
    | st.floats(allow_nan=True, allow_infinity=True) | TEXTS | NAUGHTY
)  # fmt: skip
JSONS = st.recursive(
    SCALARS,
    lambda inner: st.lists(inner, max_size=3) | st.dictionaries(TEXTS, inner, max_size=3),
    max_leaves=6,
)


def nested(depth: int) -> str:
    """Return JSON that is nested so deep."""
    return "[" * depth + "]" * depth


_PIECES = st.sampled_from(
    [
        b"\x00", b"\xff\xfe", b"\xef\xbb\xbf", b"\r\n", b"\n", b"\r", b"\n\n", b"\xc3\x28", b"\xed\xa0\x80",
        b"\\ud800", b"\\u0000", b'"\\ud800"', b'"', b"{", b"}", b"[", b",", b":", b"null", b"-0", b"1.0",
        b"1e999", b"NaN", b"9" * 19, b"9" * 5000, b" ", b"\t", b"'", b"#", b"=", b"/*", b"\x1b[2J",
        *(nested(depth).encode() for depth in (99, 101, 3000, 50_000)),
    ]
)  # fmt: skip
_CHANGES = st.tuples(
    st.sampled_from(
        ("flip", "insert", "replace", "cut", "drop", "double", "swap", "crlf", "bom", "end", "token")
    ),
    st.floats(0, 1, exclude_max=True),
    st.floats(0, 1, exclude_max=True),
    _PIECES,
)
CHANGES = st.lists(_CHANGES, min_size=1, max_size=3)
"""Up to three changes to the bytes of a file of lines."""


def changed(data: bytes, changes: Sequence[tuple[str, float, float, bytes]]) -> bytes:
    """Return a file after changes: each names what is done, where, how far, and what comes there."""
    for kind, at, more, piece in changes:
        data = _changed(data, kind, at, more, piece)
    return data


def _changed(data: bytes, kind: str, at: float, more: float, piece: bytes) -> bytes:
    place, lines = int(at * len(data)), data.split(b"\n")
    first, other = int(at * len(lines)), int(more * len(lines))
    if kind == "flip" and data:
        return data[:place] + bytes([data[place] ^ (1 << int(more * 8))]) + data[place + 1 :]
    if kind == "insert":
        return data[:place] + piece + data[place:]
    if kind == "replace":
        return data[:place] + piece + data[place + len(piece) :]
    if kind == "cut":
        return data[:place]
    if kind == "end":
        return data + piece
    if kind == "bom":
        return b"\xef\xbb\xbf" + data
    if kind == "crlf":
        return data.replace(b"\n", b"\r\n")
    if kind == "token":
        return _without_token(data, place, piece)
    if kind == "drop":
        del lines[first]
    elif kind == "double":
        lines.insert(other, lines[first])
    elif kind == "swap":
        lines[first], lines[other] = lines[other], lines[first]
    return b"\n".join(lines)


def _without_token(data: bytes, place: int, piece: bytes) -> bytes:
    """Put a piece where a value stands, in JSON or in TOML."""
    start = min((at for mark in b":=" if (at := data.find(mark, place)) >= 0), default=-1) + 1
    ends = [end for mark in (b",", b"}", b"\n") if (end := data.find(mark, start)) >= 0]
    return data[:start] + piece + data[min(ends, default=len(data)) :]


GRAFTS = st.lists(
    st.tuples(
        st.lists(st.floats(0, 1, exclude_max=True), min_size=1, max_size=6),
        st.sampled_from(("put", "put", "remove", "double", "add")),
        JSONS,
    ),
    min_size=1,
    max_size=3,
)
"""Up to three changes to a tree of JSON: a way down into it, what is done there, and with what."""


def grafted(tree: Any, grafts: Sequence[tuple[Sequence[float], str, Any]]) -> Any:
    """Return a copy of a JSON tree with parts put, removed, doubled or added."""
    tree = [copy.deepcopy(tree)]
    for way, kind, value in grafts:
        parent, key = _follow(tree, way)
        if kind == "put" or (parent is tree and kind == "remove"):
            parent[key] = value
        elif kind == "remove":
            del parent[key]
        elif kind == "double" and isinstance(parent, list) and parent is not tree:
            parent.append(copy.deepcopy(parent[key]))
        elif isinstance(parent, dict):
            parent["more"] = value
    return tree[0]


def _follow(tree: list[Any], way: Sequence[float]) -> tuple[Any, Any]:
    parent: Any = tree
    key: Any = 0
    for step in way:
        below = parent[key]
        keys: list[Any] = []
        if isinstance(below, dict | list):
            keys = list(below) if isinstance(below, dict) else list(range(len(below)))
        if not keys:
            break
        parent, key = below, keys[int(step * len(keys))]
    return parent, key
