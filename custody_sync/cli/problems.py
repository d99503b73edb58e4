"""What can go wrong around the library when it is used as a command."""

from __future__ import annotations

from custody_sync.errors import CustodyError, Terminal, Transient


class UsageProblem(CustodyError, Terminal):
    """{problem} See {command} --help."""

    code = "usage"


class OutsideProblem(CustodyError):
    """{problem}."""

    code = "outside"


class UnexpectedProblem(CustodyError):
    """Unexpected {type} at {place}; please report it (CUSTODY_SYNC_DEBUG=1 shows the traceback)."""

    code = "unexpected"


class Interrupted(CustodyError, Transient):
    """Interrupted; what was under way is settled by the next run or by `custody-sync repair`."""

    code = "interrupted"
    exit_code = 130
