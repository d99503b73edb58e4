"""Reading what a round printed: how much was tried, what failed, and how it is shown again."""

from __future__ import annotations

import re

from soak.records import Failure, Round, Seen, shell_line

_TALLY = re.compile(r"^([\d,]+ seeds, .*)$", re.MULTILINE)
_COUNT = re.compile(r"([\d,]+) ([a-z][a-z ]*)")
_AGAIN = re.compile(r"^again: (.+)$", re.MULTILINE)
_SUMMARY = re.compile(r"^=*\s*(\d+ \w+.*) in [\d.]+s\b.*$", re.MULTILINE)
_TEST_COUNT = re.compile(r"(\d+) (passed|failed|error|skipped|xfailed)")
_TEST_FAILED = re.compile(r"^(?:FAILED|ERROR) (\S+?\.py(?:::.+?)?)(?: - .*)?$", re.MULTILINE)


def read_simulator(output: str, ran: Round) -> Seen:
    """Count seeds and what they came to; each seed that fails names its own command."""
    failures = []
    for again in _AGAIN.finditer(output):
        before = output[: again.start()].rstrip("\n").split("\n\n")[-1]
        failures.append(Failure(what=before.splitlines()[0], command=again[1]))
    tallies = _TALLY.findall(output)
    counts = _numbers(tallies[-1]) if tallies else {}
    counts.pop("failed", None)
    return Seen(counts=counts, failures=tuple(failures))


def read_tests(output: str, ran: Round) -> Seen:
    """Count tests; each that fails is named with a command that runs it alone, by the same seed."""
    summaries = _SUMMARY.findall(output)
    counts = {f"tests {what}": int(n) for n, what in _TEST_COUNT.findall(summaries[-1])} if summaries else {}
    names = dict.fromkeys(_TEST_FAILED.findall(output))
    return Seen(
        counts=counts, failures=tuple(Failure(what=name, command=_alone(name, ran)) for name in names)
    )


def _alone(name: str, ran: Round) -> str:
    kept = [word for word in ran.arguments if word.startswith(("--randomly-seed", "-W", "error"))]
    return shell_line(("-m", "pytest", name, *kept), ran.environment)


def _numbers(line: str) -> dict[str, int]:
    return {what.strip(): int(number.replace(",", "")) for number, what in _COUNT.findall(line)}
