"""RFC 8785 canonical JSON, and the checks that keep everything within it.

One byte form per value is what makes hashes, digests and exports comparable for ever. Input
that has no such form (NaN, 2**53, bytes, a lone surrogate) is refused here, before any store
is touched.
"""

from __future__ import annotations

import contextlib
import json
from collections.abc import Callable
from datetime import UTC, datetime
from typing import Any

import rfc8785

from custody_sync.errors import InvalidInput
from custody_sync.model import Json, Observation

MAX_NAME_CHARS = 1000
MAX_SAFE_INTEGER = 2**53 - 1


def canonical(value: object, field: str = "value") -> bytes:
    """Return the RFC 8785 form of a value; `field` is what a refusal calls it.

    Raises:
        InvalidInput: the value has no canonical form; the message names the reason.
    """
    document: Any = value  # it checks the type itself, with a message
    # Refused outside of the except blocks: an encoder's error carries the value with it.
    try:
        return rfc8785.dumps(document)
    except rfc8785.FloatDomainError:
        problem = "NaN and infinity are not JSON"
    except rfc8785.IntegerDomainError:
        problem = "an integer is beyond 2^53-1; write it as a string"
    except RecursionError:
        problem = "is nested too deeply"
    except rfc8785.CanonicalizationError as error:
        problem = f"is not JSON ({error})"
    raise InvalidInput(field=field, problem=problem)


def canonical_plain(document: dict[str, Any]) -> str:
    """Return the RFC 8785 form of a document of ours, as text.

    It has ASCII keys, and strings, small integers, booleans and None for values. For such
    documents the standard encoder gives the same bytes several times faster, which a test holds
    against `canonical`.
    """
    return _encode(document)


def is_plain(value: object) -> bool:
    """Tell whether a value is of what `canonical_plain` gets right, whoever made it."""
    kind = type(value)
    if kind is str or value is None or kind is bool:
        return True
    if isinstance(value, int):
        return kind is int and abs(value) <= MAX_SAFE_INTEGER
    if isinstance(value, dict):
        return all(type(key) is str and key.isascii() and is_plain(item) for key, item in value.items())
    return kind is list and isinstance(value, list) and all(map(is_plain, value))


def quoted(text: str | None) -> str:
    """Return the RFC 8785 form of a string, or of nothing."""
    return "null" if text is None else quote(text)


def parse(text: str | bytes) -> Any:
    """Read JSON that `canonical` wrote, so that writing it again gives the same bytes.

    RFC 8785 writes a number such as 1e20 with all its digits; read as an integer it would be
    beyond 2^53-1 and could never be hashed or written again.
    """
    document = text.decode() if isinstance(text, bytes) else text
    try:
        value, end = _scan(document, 0)
    except StopIteration:
        value, end = None, -1
    # The decoder says what is wrong with anything else; what we wrote has no space around it to be skipped.
    return value if end == len(document) else _decoder.decode(document)


def _number(digits: str) -> int | float:
    whole = int(digits)
    return whole if abs(whole) <= MAX_SAFE_INTEGER else float(digits)


_decoder = json.JSONDecoder(parse_int=_number)
_scan: Callable[[str, int], tuple[Any, int]] = vars(_decoder)["scan_once"]


def _make_encoder() -> Callable[[dict[str, Any]], str]:
    slow = json.JSONEncoder(ensure_ascii=False, sort_keys=True, separators=(",", ":"), allow_nan=False).encode
    make = getattr(json.encoder, "c_make_encoder", None)
    quote = getattr(json.encoder, "encode_basestring", None)
    if make is None or quote is None:
        return slow
    # JSONEncoder makes this anew for every document, which takes longer than most of ours to encode.
    encode = make(None, None, quote, None, ":", ",", True, False, False)
    return lambda document: "".join(encode(document, 0))


_encode = _make_encoder()
quote: Callable[[str], str] = json.encoder.encode_basestring
"""Returns the RFC 8785 form of a string."""


def check_value(value: object, field: str = "value") -> Json:
    """Return a private copy of a JSON value in its canonical form, or refuse it.

    The copy shares nothing with the caller's object, so that later changes to it change nothing
    here; tuples become lists and `1.0` becomes `1`.
    """
    if type(value) is str:
        return check_text(value, field)
    _check_tree(value, field, 0)
    copy: Json = parse(canonical(value, field))
    return copy


def _check_tree(value: object, field: str, depth: int) -> None:
    if depth > 100:
        raise InvalidInput(field=field, problem="is nested more than 100 levels deep")
    if isinstance(value, str):
        check_text(value, field)
    elif isinstance(value, dict):
        for key, item in value.items():
            if not isinstance(key, str):
                raise InvalidInput(field=field, problem="an object key is not a string")
            check_text(key, field)
            _check_tree(item, field, depth + 1)
    elif isinstance(value, list | tuple):
        for item in value:
            _check_tree(item, field, depth + 1)
    elif value is not None and not isinstance(value, bool | int | float):
        raise InvalidInput(field=field, problem=f"{type(value).__name__} is not JSON")


def check_observation(evidence: object) -> Observation:
    """Return a private copy of what a caller observed, or refuse it.

    Source and path say where a reader can look it up, so neither may be blank.
    """
    if not isinstance(evidence, Observation):
        problem = f"must be an Observation(source, path, value), not {type(evidence).__name__}"
        raise InvalidInput(field="evidence", problem=problem)
    return Observation(
        source=check_name(evidence.source, "evidence.source"),
        path=check_name(evidence.path, "evidence.path"),
        value=check_value(evidence.value, "evidence.value"),
    )


def check_text(text: object, field: str) -> str:
    """Return a string that UTF-8 and every store can carry, or refuse it."""
    if not isinstance(text, str):
        raise InvalidInput(field=field, problem=f"must be a string, not {type(text).__name__}")
    if text.isascii() and "\x00" not in text:
        return text
    if not is_text(text):
        nul = "\x00" in text
        problem = "has a NUL character, which no database stores"
        raise InvalidInput(
            field=field, problem=problem if nul else "has a lone surrogate, which is not Unicode text"
        )
    return text


def is_text(text: object) -> bool:
    """Tell whether something is a string that UTF-8 and every store can carry."""
    if not isinstance(text, str) or "\x00" in text:
        return False
    if text.isascii():
        return True
    try:
        text.encode()
    except UnicodeEncodeError:
        return False
    return True


def check_name(name: object, field: str) -> str:
    """Return a name (space, subject, actor, …): not blank and of at most 1,000 characters."""
    # Nearly every name is of this kind, and a write checks dozens.
    if (
        isinstance(name, str)
        and name.isascii()
        and name.isprintable()
        and 0 < len(name) <= MAX_NAME_CHARS
        and name[0] != " "
    ):
        return name
    checked = check_text(name, field)
    if not checked.strip():
        raise InvalidInput(field=field, problem="must not be empty or blank")
    if len(checked) > MAX_NAME_CHARS:
        raise InvalidInput(field=field, problem=f"has {len(checked)} characters, more than {MAX_NAME_CHARS}")
    return checked


def check_optional(name: object, field: str) -> str | None:
    """Return a name, or None where none was given."""
    return None if name is None else check_name(name, field)


def check_reason(reason: object) -> str | None:
    """Return a reason: any text, or None."""
    return None if reason is None else check_text(reason, "reason")


def check_instant(instant: object, field: str) -> datetime:
    """Return an aware instant in UTC; a naive one is refused, since nobody can know what it means."""
    if type(instant) is datetime and instant.tzinfo is UTC:
        return instant
    if not isinstance(instant, datetime):
        raise InvalidInput(field=field, problem=f"must be an aware datetime, not {type(instant).__name__}")
    if instant.tzinfo is None or instant.utcoffset() is None:
        raise InvalidInput(field=field, problem="has no time zone; pass an aware datetime")
    with contextlib.suppress(OverflowError):
        return instant.astimezone(UTC)
    raise InvalidInput(field=field, problem="is outside the years 1 to 9999 in UTC")
