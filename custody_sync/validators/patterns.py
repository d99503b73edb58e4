"""Validators that look for a pattern in a fact's value and text."""

from __future__ import annotations

import re
from dataclasses import replace

from custody_sync.errors import ValidatorFailed
from custody_sync.model import Fact, Json
from custody_sync.ports import Validator, View


def redact(pattern: str | re.Pattern[str], replacement: str = "[redacted]") -> Validator:
    """Replace every match in value and text before anything is stored.

    Args:
        pattern: what must not be kept, such as a card number.
        replacement: what stands in its place, taken literally.
    """
    compiled = re.compile(pattern)

    def clean(value: Json) -> Json:
        if isinstance(value, str):
            return compiled.sub(lambda _: replacement, value)
        if isinstance(value, list):
            return [clean(item) for item in value]
        if isinstance(value, dict):
            return {key: clean(item) for key, item in value.items()}
        return value

    async def redacted(fact: Fact, view: View) -> Fact:
        text = None if fact.text is None else compiled.sub(lambda _: replacement, fact.text)
        return replace(fact, value=clean(fact.value), text=text)

    return redacted


def refuse(pattern: str | re.Pattern[str], because: str) -> Validator:
    """Refuse a fact whose value or text matches; the match itself is not repeated in the error.

    Args:
        pattern: what must not be written.
        because: the problem, as the caller will read it.

    Raises:
        ValidatorFailed: from the validator, when something matches.
    """
    compiled = re.compile(pattern)

    def matches(value: Json) -> bool:
        if isinstance(value, str):
            return compiled.search(value) is not None
        if isinstance(value, list):
            return any(matches(item) for item in value)
        if isinstance(value, dict):
            return any(matches(key) or matches(item) for key, item in value.items())
        return False

    async def checked(fact: Fact, view: View) -> Fact:
        if matches(fact.value) or matches(fact.text):
            raise ValidatorFailed(validator="refuse", problem=because)
        return fact

    return checked
