"""What an entry becomes is said by a template or a function; what is wrong with it becomes a reason."""

from __future__ import annotations

import pytest

from custody_sync.errors import InvalidInput, TextTooLong, ValidatorFailed
from custody_sync.mended import NAMED
from custody_sync.model import Entry
from custody_sync.repair.adoption import Adoption, Mapping, NotMapped
from custody_sync.repair.tally import MORE, REASONS, Tally, reason_of

ENTRY = Entry(store="s", external_id="7", scope='["memories", "ada"]', text="canary")


@pytest.mark.parametrize(
    ("template", "space"),
    [
        ("org", "org"),
        ("user:{scope[1]}", "user:ada"),
        ("{store}/{external_id}", "s/7"),
        ("{{x}}:{store}", "{x}:s"),
        ("{scope}", '["memories", "ada"]'),
    ],
)
async def test_a_template(template: str, space: str) -> None:
    """It may name store, scope and id, and one label of a scope that is a list."""
    assert await Mapping(template).of(ENTRY) == Adoption(space=space)


@pytest.mark.parametrize(
    "template",
    [
        *("{text}", "{scope.__class__}", "{0}", "{}", "{store", "{scope[x]}", "{scope[0][1]}", "{store[0]}"),
        *("{scope!r}", "{scope:>999999999}", "{scope!r:>999999999}", "{external_id:{scope}}", "{scope[-1]}"),
    ],
)
def test_a_template_names_nothing_else(template: str) -> None:
    """No attribute and no text gets into a space, and nothing says how long it is to be."""
    with pytest.raises(InvalidInput, match="a template may have"):
        Mapping(template)


async def test_a_functions_error_is_told_by_its_type() -> None:
    """What it raises may quote the text, and does not travel on."""

    def broken(entry: Entry) -> Adoption:
        raise KeyError(entry.text)

    with pytest.raises(NotMapped, match="the mapping raised KeyError") as caught:
        await Mapping(broken).of(ENTRY)
    assert caught.value.__context__ is None


def test_a_tally_does_not_grow() -> None:
    """Reasons and names are bounded, and the count is right all the same."""
    tally = Tally()
    for n in range(NAMED + 500):
        tally.add(f"reason {n}", external_id=f"{n}")
    assert (tally.count, len(tally.named), len(tally.reasons)) == (NAMED + 500, NAMED, REASONS + 1)
    assert tally.reasons[MORE] == NAMED + 500 - REASONS


def test_a_reason_quotes_nobody() -> None:
    """A validator's own words are left out; limits, and which validator it was, are not."""
    assert reason_of(InvalidInput(field="value", problem="canary")) == "its value is refused (invalid_input)"
    assert "10 characters" in reason_of(TextTooLong(store="s", size=99, unit="characters", limit=10))
    assert reason_of(ValidatorFailed(validator="v", problem="it raised E")) == "validator v: it raised E"
