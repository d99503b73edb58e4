"""What the caller got wrong."""

from __future__ import annotations

from custody_sync.errors.base import CustodyError, Terminal, Transient


class InvalidInput(CustodyError, Terminal, ValueError):
    """{field}: {problem}."""

    code = "invalid_input"


class TextTooLong(InvalidInput):
    """text: {size} {unit} are more than the {limit} that store {store!r} takes."""

    code = "text_too_long"


class EvidenceDiffers(InvalidInput):
    """evidence: what stands at {path!r} of {source!r} is not the value; nothing was written."""

    code = "evidence_differs"
    exit_code = 4


class InvalidStore(CustodyError, Terminal, TypeError):
    """store {store!r}: {problem}."""

    code = "invalid_store"


class MissingExtra(CustodyError, Terminal, ImportError):
    """{feature} needs an extra: pip install 'custody-sync[{extra}]'."""

    code = "missing_extra"


class NotOffered(CustodyError, Terminal, NotImplementedError):
    """{what} {problem}."""

    code = "not_offered"


class InsideEventLoop(CustodyError, Terminal, RuntimeError):
    """{used} blocks and was called from inside a running event loop; use {instead} there."""

    code = "inside_event_loop"


class ClosedError(CustodyError, Terminal, RuntimeError):
    """{what} is closed."""

    code = "closed"


class ClockSkew(CustodyError, Transient):
    """This clock and the ledger's are {seconds} s apart, more than two minutes; set the clock right first."""

    code = "clock_skew"


class ValidatorFailed(CustodyError, Terminal):
    """Validator {validator} did not pass the fact: {problem}."""

    code = "validator_failed"
    exit_code = 4
