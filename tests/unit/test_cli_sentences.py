"""The library's errors, worded for whoever types commands: options, advice that works, one full stop."""

from __future__ import annotations

import errno

import pytest

from custody_sync.cli.sentences import ended, outside, sentence, told
from custody_sync.errors import BreakerOpen, InvalidInput, LedgerNotFound, MissingExtra


@pytest.mark.parametrize(
    ("said", "shown"),
    [
        ("it failed", "it failed."),
        ("it failed.", "it failed."),
        ("it failed..", "it failed."),
        ("is it there?", "is it there?"),
        ("and so on...", "and so on..."),
    ],
)
def test_a_sentence_ends_with_one_full_stop(said: str, shown: str) -> None:
    """Whatever a part of it ended with."""
    assert ended(said) == shown


def test_an_error_made_of_a_sentence_ends_once() -> None:
    """A problem that is a sentence itself does not double the stop, for people and for programs."""
    error = InvalidInput(field="x", problem="must not be empty.")
    assert sentence(error) == "x: must not be empty."
    assert told(error)["message"] == "x: must not be empty."
    assert told(error)["code"] == "invalid_input"


def test_the_breaker_names_the_option() -> None:
    """Not the argument of the method."""
    said = sentence(BreakerOpen(planned=7, scanned=9))
    assert "--max-removals 7" in said
    assert "max_removals" not in said


def test_a_missing_ledger_may_be_a_wrong_path() -> None:
    """Both ways out are named, and no Python."""
    said = sentence(LedgerNotFound(name="x.db"))
    assert said == "No ledger at x.db; create one with `custody-sync init`, or check the path."


def test_a_missing_extra_has_advice_for_a_checkout_too() -> None:
    """In a checkout the package's own name would lead elsewhere."""
    said = sentence(MissingExtra(feature="The demo", extra="demo"))
    assert "pip install 'custody-sync[demo]'" in said
    assert "pip install -e '.[demo]'" in said


@pytest.mark.parametrize(
    ("error", "said"),
    [
        (
            FileNotFoundError(errno.ENOENT, "No such file or directory", "a[1]"),
            "a[1]: No such file or directory.",
        ),
        (PermissionError(errno.EACCES, "Permission denied", "a"), "a: Permission denied."),
        (OSError(errno.EIO, "Input/output error"), f"[Errno {errno.EIO}] Input/output error."),
        (OSError("odd"), "odd."),
    ],
)
def test_a_number_is_shown_where_it_helps(error: OSError, said: str) -> None:
    """What everybody knows needs no number."""
    assert sentence(outside(error)) == said
