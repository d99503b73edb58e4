"""The file that `import` reads: one fact a line, all of them checked before the first is written.

A line is identified by its `ref` if it has one, else by its content and by how often that content
came before, never by the file's name or its place in it: so a file can be imported again, also
after lines were added or moved, and nothing is written twice.
"""

from __future__ import annotations

import hashlib
from collections import Counter
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from datetime import datetime
from enum import Enum
from typing import Any

from custody_sync.canonical import canonical, check_name, check_text, check_value
from custody_sync.cli.options import json_value
from custody_sync.errors import InvalidInput
from custody_sync.model import Provenance, read_instant

FIELDS = (
    "value",
    "space",
    "subject",
    "predicate",
    "text",
    "actor",
    "supersedes",
    "valid_from",
    "valid_to",
    "receipt_id",
    "idempotency_key",
    "provenance",
)
"""What a line may say besides `ref` and `supersedes_ref`: the arguments of `write`."""

_TRUST = {Provenance.CLAIMED: 0, Provenance.ATTESTED: 1, Provenance.VERIFIED: 2}
_STATEMENT = ("space", "subject", "predicate")


class Identity(Enum):
    """By what a line is known when it is imported again."""

    KEY = "its idempotency_key"
    REF = "its ref"
    CONTENT = "its content"


@dataclass(frozen=True, slots=True, kw_only=True)
class Line:
    """One checked line: the arguments of its write, and the earlier line that it corrects."""

    number: int
    """Its place in the file, counted from 1 as editors do."""
    ref: str | None
    identity: Identity
    arguments: Mapping[str, Any]
    corrects: int | None = None
    """The number of the line that this one supersedes."""


def read_lines(raw: bytes, *, actor: str | None, provenance: Provenance) -> list[Line]:
    """Check every line of a file and return them, or refuse the whole file naming each wrong line.

    Only a line feed ends a line: U+2028 and the like are text. A byte order mark, carriage
    returns before the line feed and blank lines are tolerated.
    """
    file = _File(actor=actor, ceiling=provenance)
    for number, physical in enumerate(raw.removeprefix(b"\xef\xbb\xbf").split(b"\n"), start=1):
        if physical.strip():
            file.add(number, physical.removesuffix(b"\r"))
    if file.problems:
        count = len(file.problems)
        told = "; ".join(f"line {number}: {problem}" for number, problem in list(file.problems.items())[:20])
        raise InvalidInput(
            field="file",
            problem=f"{count} wrong line{'s' if count != 1 else ''}, nothing was written: {told}",
            lines=[{"line": number, "problem": problem} for number, problem in file.problems.items()],
        )
    return file.lines


class _File:
    """What the lines so far have established for the ones that follow."""

    def __init__(self, *, actor: str | None, ceiling: Provenance) -> None:
        self.lines: list[Line] = []
        self.problems: dict[int, str] = {}
        self._actor = actor
        self._ceiling = ceiling
        self._refs: dict[str, Line] = {}
        self._numbers: dict[str, int] = {}
        self._corrected: dict[int, int] = {}
        self._seen: Counter[bytes] = Counter()

    def add(self, number: int, physical: bytes) -> None:
        try:
            line = self._read(number, physical)
        except InvalidInput as error:
            self.problems[number] = str(error).rstrip(".")
            return
        self.lines.append(line)
        if line.ref is not None:
            self._refs[line.ref] = line

    def _read(self, number: int, physical: bytes) -> Line:
        stated = _object(physical)
        for key in stated:
            if key not in FIELDS and key not in ("ref", "supersedes_ref"):
                raise InvalidInput(field=key, problem="is no field of a fact")
        ref = _optional(stated, "ref", check_name)
        if ref is not None:
            first = self._numbers.setdefault(ref, number)
            if first != number:
                raise InvalidInput(field="ref", problem=f"{ref!r} is also the ref of line {first}")
        arguments = self._arguments(stated)
        target = self._target(number, stated, arguments)
        identity = Identity.CONTENT if ref is None else Identity.REF
        if "idempotency_key" in arguments:
            identity = Identity.KEY
        else:
            arguments["idempotency_key"] = self._key(ref, stated)
        corrects = target.number if target else None
        return Line(number=number, ref=ref, identity=identity, arguments=arguments, corrects=corrects)

    def _arguments(self, stated: Mapping[str, Any]) -> dict[str, Any]:
        """Return the arguments of `write`, checked as far as a file can be checked without a ledger."""
        for required in ("value", "space"):
            if required not in stated:
                raise InvalidInput(field=required, problem="is missing")
        if ("subject" in stated) != ("predicate" in stated):
            raise InvalidInput(field="subject", problem="subject and predicate go together")
        value = stated["value"]
        if "subject" not in stated and not (isinstance(value, str) and value.strip()):
            problem = "of free text is a sentence; anything else needs subject and predicate"
            raise InvalidInput(field="value", problem=problem)
        checked: dict[str, Any] = {"value": check_value(value)}
        for name in (*_STATEMENT, "supersedes", "receipt_id", "idempotency_key"):
            checked[name] = _optional(stated, name, check_name)
        checked["text"] = _optional(stated, "text", check_text)
        checked["actor"] = _optional(stated, "actor", check_name) or self._actor
        if checked["actor"] is None:
            raise InvalidInput(field="actor", problem="is missing; give --actor for lines without one")
        checked["valid_from"], checked["valid_to"] = (
            _instant(stated, "valid_from"),
            _instant(stated, "valid_to"),
        )
        if checked["valid_from"] and checked["valid_to"] and checked["valid_from"] >= checked["valid_to"]:
            raise InvalidInput(field="valid_to", problem="is not after valid_from")
        checked["provenance"] = self._provenance(stated)
        return {name: value for name, value in checked.items() if value is not None or name == "value"}

    def _provenance(self, stated: Mapping[str, Any]) -> Provenance:
        """Let a line claim less than the command grants, never more: it is the caller who is trusted."""
        if "provenance" not in stated:
            return self._ceiling
        try:
            asked = Provenance(stated["provenance"])
        except ValueError:
            raise InvalidInput(field="provenance", problem=f"is none of {', '.join(Provenance)}") from None
        if _TRUST[asked] > _TRUST[self._ceiling]:
            problem = f"{asked.value} is more than --provenance {self._ceiling.value} grants"
            raise InvalidInput(field="provenance", problem=problem)
        return asked

    def _target(self, number: int, stated: Mapping[str, Any], arguments: Mapping[str, Any]) -> Line | None:
        wanted = _optional(stated, "supersedes_ref", check_name)
        if wanted is None:
            return None
        if "supersedes" in stated:
            raise InvalidInput(field="supersedes_ref", problem="stands beside supersedes; give one of them")
        target = self._refs.get(wanted)
        if target is None:
            raise InvalidInput(field="supersedes_ref", problem=f"no good earlier line has the ref {wanted!r}")
        if target.arguments["provenance"] is Provenance.CLAIMED:
            problem = (
                f"line {target.number} would only be claimed, and only what is believed can be superseded; "
                "--provenance attested imports it as believed"
            )
            raise InvalidInput(field="supersedes_ref", problem=problem)
        for name in _STATEMENT:
            if arguments.get(name) != target.arguments.get(name):
                raise InvalidInput(
                    field=name, problem=f"differs from line {target.number}, which it supersedes"
                )
        starts, before = arguments.get("valid_from"), target.arguments.get("valid_from")
        if starts and before and starts < before:
            raise InvalidInput(field="valid_from", problem=f"is before that of line {target.number}")
        earlier = self._corrected.setdefault(target.number, number)
        if earlier != number:
            problem = f"line {earlier} supersedes {wanted!r} already; supersede that line instead"
            raise InvalidInput(field="supersedes_ref", problem=problem)
        return target

    def _key(self, ref: str | None, stated: Mapping[str, Any]) -> str:
        if ref is not None:
            identity: list[object] = ["ref", ref]
        else:
            content = canonical(stated)
            identity = ["content", dict(stated), self._seen[content]]
            self._seen[content] += 1
        return "import:" + hashlib.sha256(canonical(identity)).hexdigest()


def _object(physical: bytes) -> dict[str, Any]:
    try:
        stated = json_value("line", physical.decode("utf-8"))
    except UnicodeDecodeError:
        raise InvalidInput(field="line", problem="is not UTF-8") from None
    if not isinstance(stated, dict):
        raise InvalidInput(field="line", problem="is not a JSON object")
    return {name: value for name, value in stated.items() if value is not None or name == "value"}


def _optional(stated: Mapping[str, Any], name: str, check: Callable[[object, str], str]) -> str | None:
    return check(stated[name], name) if name in stated else None


def _instant(stated: Mapping[str, Any], name: str) -> datetime | None:
    if name not in stated:
        return None
    parsed = read_instant(stated[name])
    if parsed is None:
        raise InvalidInput(field=name, problem="is not an instant such as 2026-01-31T12:00:00Z")
    return parsed
