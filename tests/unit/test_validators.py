"""Ready-made validators redact and refuse before anything is stored."""

from __future__ import annotations

from datetime import UTC, datetime
from typing import Any, cast

import pytest

from custody_sync.errors import ValidatorFailed
from custody_sync.model import Fact, Json, Provenance
from custody_sync.ports import View
from custody_sync.validators import redact, refuse

CARD = r"\b\d{4}-\d{4}\b"
NO_VIEW = cast(View, cast(Any, None))


def _fact(value: Json, text: str = "acct:1 card: see value") -> Fact:
    return Fact(
        fact_id="f",
        space="org",
        subject="acct:1",
        predicate="card",
        value=value,
        text=text,
        actor="a",
        provenance=Provenance.ATTESTED,
        valid_from=datetime(2026, 9, 1, tzinfo=UTC),
    )


async def test_redact_replaces_matches_at_every_depth_and_in_the_text() -> None:
    """Value and text both lose the match; the rest stays."""
    fact = _fact({"cards": ["1234-5678", {"old": "8765-4321!"}], "n": 3}, text="card 1234-5678 on file")
    passed = await redact(CARD)(fact, NO_VIEW)
    assert passed.value == {"cards": ["[redacted]", {"old": "[redacted]!"}], "n": 3}
    assert passed.text == "card [redacted] on file"


async def test_redact_takes_the_replacement_literally() -> None:
    """A backslash or group reference in the replacement is just text."""
    passed = await redact(CARD, r"\1\g<0>")(_fact("1234-5678"), NO_VIEW)
    assert passed.value == r"\1\g<0>"


@pytest.mark.parametrize("value", ["1234-5678", ["x", "1234-5678"], {"k": "1234-5678"}, {"1234-5678": 1}])
async def test_refuse_stops_a_match_anywhere_in_the_value(value: Json) -> None:
    """The error says why and does not repeat the match."""
    with pytest.raises(ValidatorFailed) as caught:
        await refuse(CARD, "card numbers are not kept")(_fact(value), NO_VIEW)
    assert "card numbers are not kept" in str(caught.value)
    assert "1234" not in str(caught.value)


async def test_refuse_looks_at_the_text_too() -> None:
    """A clean value does not excuse the text that stores index."""
    with pytest.raises(ValidatorFailed):
        await refuse(CARD, "no cards")(_fact("clean", text="1234-5678"), NO_VIEW)


async def test_refuse_passes_what_does_not_match() -> None:
    """A fact without a match comes back as it was."""
    fact = _fact({"n": [1, None, True, "fine"]})
    assert await refuse(CARD, "no cards")(fact, NO_VIEW) == fact
