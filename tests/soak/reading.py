"""Reading what a round printed: how much was tried, what failed, and how it is shown again."""

from __future__ import annotations

import json
import re
from collections import Counter

from soak.records import Failure, Round, Seen, shell_line

STILL_OPEN = "whose survivors are still to be gone through"
"""What is said of a target of mutants whose survivors are shown and fail nothing."""
_TALLY = re.compile(r"^([\d,]+ (?:seeds|cases), .*)$", re.MULTILINE)
_COUNT = re.compile(r"([\d,]+) ([a-z][a-z ]*)")
_KILLS = re.compile(r"^(kills|histories) over \w+: (.+)$", re.MULTILINE)
_MATRIX = re.compile(r"^crash matrix: (\d+) kills", re.MULTILINE)
_NAMED_COUNT = re.compile(r"([a-z][a-z ]*) (\d+)")
_RERUN = re.compile(r"(seed \d+\b.*); run it again: (.+)$", re.MULTILINE)
_EXECUTIONS = re.compile(r'\{"test": .*\}$', re.MULTILINE)
_MUTANTS = re.compile(r"^\w+: (\d+) mutants, (\d+) killed \(.*?\), (\d+) explained, (\d+) not", re.MULTILINE)
_LIVING = re.compile(r"^  (\S.*)\n    - (.*)\n    \+ (.*)$", re.MULTILINE)
_CASES = re.compile(r'\{"storage": .*\}$', re.MULTILINE)
_DOUBLE = re.compile(r"double faults: (\d+) from seed")
_AGAIN = re.compile(r"^again: (.+)$", re.MULTILINE)
_SUMMARY = re.compile(r"^=*\s*(\d+ \w+.*) in [\d.]+s\b.*$", re.MULTILINE)
_TEST_COUNT = re.compile(r"(\d+) (passed|failed|error|skipped|xfailed)")
_TEST_FAILED = re.compile(r"^(?:FAILED|ERROR) (\S+?\.py(?:::.+?)?)(?: - .*)?$", re.MULTILINE)


def read_simulator(output: str, ran: Round) -> Seen:
    """Count seeds or schedules and what they came to; each that fails names its own command."""
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


def read_kills(output: str, ran: Round) -> Seen:
    """Count processes that were killed, and calls in histories; what fails names its seed and command."""
    counts: Counter[str] = Counter()
    for number in _MATRIX.findall(output):
        counts["kills at fault points"] += int(number)
    for kind, figures in _KILLS.findall(output):
        for name, number in _NAMED_COUNT.findall(figures):
            # The simulator's seeds are something else: one of these is a world of many lives.
            name = {"seeds": "worlds"}.get(name.strip(), name.strip())
            counts[name if kind == "kills" else f"{name} in histories"] += int(number)
    seen = read_tests(output, ran)
    reruns = dict.fromkeys(_RERUN.findall(output))
    named = tuple(Failure(what=what, command=command) for what, command in reruns)
    return Seen(counts=counts, failures=named or seen.failures)


def read_executions(output: str, ran: Round) -> Seen:
    """Count how often the body of a fuzzed test was executed, from the lines that each test reports."""
    lines = [json.loads(line) for line in _EXECUTIONS.findall(output)]
    counts = {"executions": sum(line["executions"] for line in lines), "fuzzed tests": len(lines)}
    return Seen(counts=counts, failures=read_tests(output, ran).failures)


def read_matrix(output: str, ran: Round) -> Seen:
    """Count single faults from the lines that each operation reports, and double ones from the test's own."""
    counts: Counter[str] = Counter()
    for line in map(json.loads, _CASES.findall(output)):
        counts["single faults"] += sum(line["cases"].values())
    for number in _DOUBLE.findall(output):
        counts["double faults"] += int(number)
    return Seen(counts=counts, failures=read_tests(output, ran).failures)


def read_mutants(output: str, ran: Round) -> Seen:
    """Count mutants and what became of them; one that nobody notices or explains fails a finished target."""
    counts: Counter[str] = Counter()
    for made, killed, explained, rest in _MUTANTS.findall(output):
        counts.update({"mutants": int(made), "mutants killed": int(killed)})
        counts.update({"explained": int(explained), "not explained": int(rest)})
    if ran.about.endswith(STILL_OPEN):
        return Seen(counts=counts)
    living = [
        Failure(what=f"in {function} nobody notices {after!r} for {before!r}", command=ran.command)
        for function, before, after in _LIVING.findall(output)
    ]
    return Seen(counts=counts, failures=tuple(living))


def _alone(name: str, ran: Round) -> str:
    kept = [word for word in ran.arguments if word.startswith(("--randomly-seed", "-W", "error"))]
    told = {name: value for name, value in ran.environment.items() if not name.endswith("_REPORT")}
    return shell_line(("-m", "pytest", name, *kept), told)


def _numbers(line: str) -> dict[str, int]:
    return {what.strip(): int(number.replace(",", "")) for number, what in _COUNT.findall(line)}
