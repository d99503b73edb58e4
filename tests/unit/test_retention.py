"""Retention windows: which pattern a space falls under, and which windows are refused."""

from __future__ import annotations

import pytest

from custody_sync.errors import InvalidInput
from custody_sync.retention import read_windows

WINDOWS = {"org": "P30D", "team:*": "P1D", "team:legal": "P10Y", "team:legal:*": "P5Y", "user:4*": "P1M"}


@pytest.mark.parametrize(
    ("space", "pattern"),
    [
        ("org", "org"),
        ("org2", None),
        ("or", None),
        ("Org", None),
        ("team:support", "team:*"),
        ("team:", "team:*"),
        ("team", None),
        ("team:legal", "team:legal"),
        ("team:legal:eu", "team:legal:*"),
        ("team:legality", "team:*"),
        ("user:42", "user:4*"),
        ("user:5", None),
    ],
)
def test_the_most_specific_pattern_wins(space: str, pattern: str | None) -> None:
    """The space itself beats a longer prefix, which beats a shorter one; the rest is left alone."""
    assert read_windows(WINDOWS).pattern_of(space) == pattern


def test_order_does_not_matter() -> None:
    """The same windows in another order say the same."""
    backwards = read_windows(dict(reversed(WINDOWS.items())))
    assert backwards.pattern_of("team:legal") == "team:legal"
    assert backwards.pattern_of("team:legal:eu") == "team:legal:*"


def test_a_star_alone_is_every_space_and_the_last_resort() -> None:
    """`*` is the shortest prefix there is."""
    windows = read_windows({"*": "P1Y", "org": "P1D"})
    assert [windows.pattern_of(space) for space in ("org", "user:1", "*")] == ["org", "*", "*"]


@pytest.mark.parametrize("text", ["PT", "P0D", "-P1D", "P1.5D", "", "90 days", None, 90])
def test_c11_a_wrong_duration_is_refused_when_loaded(text: object) -> None:
    """C11: one wrong duration refuses all windows, and the sentence names its pattern."""
    with pytest.raises(InvalidInput) as caught:
        read_windows({"org": "P30D", "team:*": text})
    assert caught.value.field == "windows.team:*"


@pytest.mark.parametrize(
    "windows", [{}, None, "P30D", [("org", "P30D")], {"": "P1D"}, {"  ": "P1D"}, {3: "P1D"}]
)
def test_windows_are_a_mapping_with_named_spaces(windows: object) -> None:
    """Nothing, a bare duration, and a blank pattern are refused."""
    with pytest.raises(InvalidInput):
        read_windows(windows)


@pytest.mark.parametrize("pattern", ["*:legal", "team:*:eu", "**", "a*b"])
def test_a_star_stands_at_the_end(pattern: str) -> None:
    """A pattern that would not mean what it looks like is refused."""
    with pytest.raises(InvalidInput, match="has a \\* that is not its end"):
        read_windows({pattern: "P1D"})
