"""What docker/ says to engines that no test has: its files fit each other, and what the pages promise."""

from __future__ import annotations

import re
import shutil
import subprocess
from pathlib import Path
from typing import Any

import pytest
import typer.main
import yaml
from fix_docker import DOCKER, JOBS, PROGRAM, command_lines, container, documents

from custody_sync.cli.main import application

ROOT = Path(__file__).parents[2]
DOCKERFILE = (DOCKER / "Dockerfile").read_text()


def instructions() -> list[tuple[str, str]]:
    """Return the Dockerfile's instructions with their arguments, lines joined."""
    joined = re.sub(r"\\\n\s*", "", re.sub(r"^#.*\n", "", DOCKERFILE, flags=re.MULTILINE))
    return [(word, rest) for word, _, rest in (line.partition(" ") for line in joined.splitlines() if line)]


@pytest.mark.parametrize("place", sorted(command_lines()))
def test_every_command_line_is_one_of_ours(place: str) -> None:
    """The real command line parses each, and each job leaves metrics that a collector finds."""
    args = command_lines()[place]
    group: Any = typer.main.get_command(application())
    context = group.make_context("custody-sync", list(args), resilient_parsing=False)
    verb, command, rest = group.resolve_command(context, list(args))
    parsed = command.make_context(verb, list(rest), parent=context).params
    assert str(parsed["metrics_file"]).endswith("custody-sync.prom")
    assert parsed["only_due" if verb == "repair" else "everything"] is True


def test_the_image_runs_the_command_as_nobody() -> None:
    """The last stage has a numeric user other than root, the command as its entry, and no check of health."""
    last = [at for at, (word, _) in enumerate(instructions()) if word == "FROM"][-1]
    final = instructions()[last:]
    told = dict(final)
    (uid,) = [rest.partition("=")[2] for word, rest in final if word == "ARG"]
    assert told["USER"] == "${UID}:${UID}"
    assert int(uid) >= 10_000
    assert told["ENTRYPOINT"] == '["custody-sync"]'
    assert told["HEALTHCHECK"] == "NONE"
    assert [word for word, _ in final][-3:] == ["HEALTHCHECK", "ENTRYPOINT", "CMD"]
    assert not any("pip" in rest for word, rest in final if word == "RUN"), (
        "nothing is built in the last stage"
    )


def test_the_base_is_pinned_and_one() -> None:
    """Both stages stand on the same tag, of a Python that the package supports, and not on `latest`."""
    said = instructions()
    assert said[0] == ("ARG", "PYTHON=3.13-slim-trixie")
    assert [rest.split()[0] for word, rest in said if word == "FROM"] == ["python:${PYTHON}"] * 2
    assert "Programming Language :: Python :: 3.13" in (ROOT / "pyproject.toml").read_text()


def test_the_builder_gets_what_a_wheel_is_built_from_and_no_more() -> None:
    """What is copied is what the ignore file lets through: what the packaging tests build from, too."""
    copied = {
        source
        for word, rest in instructions()
        if word == "COPY" and not rest.startswith("--from")
        for source in rest.split()[:-1]
    }
    lines = (DOCKER / "Dockerfile.dockerignore").read_text().splitlines()
    allowed = {line[1:] for line in lines if line.startswith("!")}
    assert (
        copied == allowed == {"pyproject.toml", "README.md", "LICENSE", "custody_sync", "adapters", "repair"}
    )
    assert lines[1] == "*"


def test_the_default_extras_exist() -> None:
    """The image's extras are extras, and reach the ledger and the store of the example."""
    (extras,) = re.findall(r"^ARG EXTRAS=(.*)$", DOCKERFILE, re.MULTILINE)
    assert set(extras.split(",")) == {"pgvector", "postgres"}
    assert "${CUSTODY_EXTRAS:-pgvector,postgres}" in (DOCKER / "compose.yaml").read_text()


@pytest.mark.parametrize("job", JOBS)
def test_a_cron_job_is_one_at_a_time_and_harmless(job: str) -> None:
    """No two at once, no root, nothing writable but its volumes, and no secret in the file."""
    (cron,) = documents(DOCKER / f"kubernetes/{job}.yaml")
    assert cron["metadata"]["name"] == f"custody-sync-{job}"
    assert cron["spec"]["concurrencyPolicy"] == "Forbid"
    pod = cron["spec"]["jobTemplate"]["spec"]["template"]["spec"]
    assert pod["securityContext"]["runAsNonRoot"] is True
    assert f"ARG UID={pod['securityContext']['runAsUser']}\n" in DOCKERFILE
    one = container(cron)
    assert one["securityContext"] == {
        "allowPrivilegeEscalation": False,
        "readOnlyRootFilesystem": True,
        "capabilities": {"drop": ["ALL"]},
    }
    assert one["envFrom"] == [{"secretRef": {"name": "custody-sync"}}]
    assert "postgresql://" not in (DOCKER / f"kubernetes/{job}.yaml").read_text()
    mounts = {mount["mountPath"] for mount in one["volumeMounts"]}
    assert mounts == {"/etc/custody-sync", "/state", "/tmp"}
    assert {v["name"] for v in pod["volumes"]} == {mount["name"] for mount in one["volumeMounts"]}


def test_what_the_jobs_mount_is_declared() -> None:
    """The claim and the account that the jobs name are in the file beside them."""
    account, claim = documents(DOCKER / "kubernetes/configuration.yaml")
    for job in JOBS:
        (cron,) = documents(DOCKER / f"kubernetes/{job}.yaml")
        pod = cron["spec"]["jobTemplate"]["spec"]["template"]["spec"]
        assert pod["serviceAccountName"] == account["metadata"]["name"]
        claims = [
            v["persistentVolumeClaim"]["claimName"] for v in pod["volumes"] if "persistentVolumeClaim" in v
        ]
        assert claims == [claim["metadata"]["name"]]
        # A claim for one node, so its users have to be on the same one.
        (together,) = pod["affinity"]["podAffinity"]["requiredDuringSchedulingIgnoredDuringExecution"]
        labels = cron["spec"]["jobTemplate"]["spec"]["template"]["metadata"]["labels"]
        assert claim["spec"]["accessModes"] == ["ReadWriteOnce"]
        assert together["labelSelector"]["matchLabels"] == labels


def test_the_compose_service_takes_no_more_than_it_needs() -> None:
    """It starts when it is named, waits for Postgres, may write only its volumes, and has no password."""
    services = yaml.safe_load((DOCKER / "compose.yaml").read_text())["services"]
    custody = services["custody"]
    assert custody["profiles"] == ["custody"]
    assert custody["depends_on"] == {"postgres": {"condition": "service_healthy"}}
    assert (custody["read_only"], custody["cap_drop"], custody["restart"]) == (True, ["ALL"], "no")
    assert [volume.split(":")[-1] for volume in custody["volumes"]] == ["ro", "/data", "/state"]
    assert custody["environment"]["PGPASSWORD"] == services["postgres"]["environment"]["POSTGRES_PASSWORD"]
    assert re.findall(r"//\w+:[^@/]+@", str(custody)) == []
    assert (DOCKER / custody["build"]["context"]).resolve() == ROOT
    assert (ROOT / custody["build"]["dockerfile"]).is_file()


@pytest.mark.skipif(
    shutil.which("systemd-analyze") is None, reason="no systemd here to ask what it thinks of units"
)
def test_systemd_takes_the_units(tmp_path: Path) -> None:
    """Systemd finds nothing to say about services and timers, once the program is there."""
    for unit in (DOCKER / "systemd").iterdir():
        text = unit.read_text().replace(PROGRAM, shutil.which("true") or "/bin/true")
        (tmp_path / unit.name).write_text(text)
    units = sorted(tmp_path.iterdir())
    assert len(units) == 2 * len(JOBS)
    done = subprocess.run(
        ["systemd-analyze", "verify", *units], capture_output=True, text=True, check=False, timeout=60
    )
    said = [line for line in (done.stdout + done.stderr).splitlines() if "custody-sync" in line]
    assert (done.returncode, said) == (0, [])
