"""The folder deploy: its commands and those of the documents are valid, and what it says of the server is so."""

import json
import os
import re
import shlex
import shutil
import subprocess
import sys
from collections.abc import Iterator
from fnmatch import fnmatch
from functools import cache
from pathlib import Path
from typing import Any

import httpx
import pytest
import yaml
from typer.main import get_command

from shared_core import SessionPool
from shared_core.doors.cli.command import app as command
from shared_core.doors.cli.command_list import COMMANDS
from shared_core.doors.cli.serve_commands import KEY
from shared_core.doors.openai_proxy.app import create_app
from shared_core.doors.openai_proxy.echo_upstream import EchoTransport
from shared_core.doors.openai_proxy.upstream import Upstream
from shared_core.doors.serving.health import READY
from shared_core.store import Store
from tests.openai_proxy.servers import served, until
from tests.support.documents import ROOT

DEPLOY = ROOT / "deploy"
DOCKERFILE = (DEPLOY / "Dockerfile").read_text(encoding="utf-8")
COMPOSE = yaml.safe_load((DEPLOY / "compose.yaml").read_text(encoding="utf-8"))
UNIT = (DEPLOY / "infinite-memory.service").read_text(encoding="utf-8")
PAGE = (ROOT / "docs" / "deploy.md").read_text(encoding="utf-8")
GROUP: Any = get_command(command)


def instruction(name: str) -> list[str]:
    """Return the arguments of all instructions of the Dockerfile with a name; continued lines are one."""
    return re.findall(rf"^{name} (.*)$", DOCKERFILE.replace("\\\n", " "), flags=re.MULTILINE)


def parsed(words: list[str]) -> dict[str, Any]:
    """Return the values of a command line, which must be valid."""
    context = GROUP.make_context("infinite-memory", [], resilient_parsing=True)
    chosen = GROUP.get_command(context, words[0])
    assert chosen is not None, words
    with chosen.make_context(words[0], [*words[1:]], parent=context) as own:
        assert not own.args
        return dict(own.params)


def in_the_image() -> list[str]:
    (entry,), (default,) = instruction("ENTRYPOINT"), instruction("CMD")
    assert json.loads(entry) == ["infinite-memory"]
    return list(json.loads(default))


def in_the_unit() -> list[str]:
    (line,) = re.findall(r"^ExecStart=(.*)$", UNIT, flags=re.MULTILINE)
    program, *words = shlex.split(line)
    assert Path(program).name == "infinite-memory"
    return words


def in_the_documents() -> Iterator[list[str]]:
    """Yield what follows `infinite-memory` in every command of the pages on servers."""
    for name in ("clients", "deploy", "mcp", "serve"):
        text = (ROOT / "docs" / f"{name}.md").read_text(encoding="utf-8")
        for block in re.findall(r"```console\n(.*?)```", text, flags=re.DOTALL):
            for line in re.findall(r"^\$ (.*)$", block.replace("\\\n", " "), flags=re.MULTILINE):
                words = shlex.split(line, comments=True)
                if "infinite-memory" in words and "docker build" not in line and "systemctl" not in line:
                    rest = words[words.index("infinite-memory") + 1 :]
                    yield from [rest] if rest and "--unit" not in words else []


def test_every_command_is_valid() -> None:
    services = [one["command"] for one in COMPOSE["services"].values() if "command" in one]
    for words in (in_the_image(), *services, in_the_unit()):
        values = parsed(words)
        assert values["tokens"], "an address that others reach, or may reach through a proxy, needs tokens"
    documented = list(in_the_documents())
    assert {words[0] for words in documented} == {"serve", "mcp", "backup", "stats"}
    for words in documented:
        parsed(words)


def test_the_variables_are_those_that_the_command_reads() -> None:
    options = {
        one.envvar for name in COMMANDS for one in GROUP.get_command(None, name).params if isinstance(one.envvar, str)
    }
    known = {*options, KEY}
    for text in (DOCKERFILE, json.dumps(COMPOSE), UNIT, PAGE):
        named = set(re.findall(r"INFINITE_MEMORY_[A-Z_]+", text))
        assert named
        assert named <= known


# Docker


def test_the_image_is_built_from_what_is_there() -> None:
    bases = [line.split()[0] for line in instruction("FROM")]
    assert len(bases) == 2
    assert len(set(bases)) == 1
    assert re.fullmatch(r"python:3\.\d+-slim-\w+", bases[0])
    sources = [source for line in instruction("COPY") if "--from" not in line for source in line.split()[:-1]]
    assert all((ROOT / source).exists() for source in sources)
    lines = [line for line in (ROOT / ".dockerignore").read_text(encoding="utf-8").splitlines() if line[:1] != "#"]
    let_in = {line[1:] for line in lines if line.startswith("!")}
    assert lines[0] == "*", "what is not named stays out"
    assert let_in == set(sources)
    for secret in ("tokens", ".env", "chat.db", "chat.db-wal"):
        assert not any(fnmatch(secret, name) for name in let_in)
    (extras,) = re.findall(r'"\.\[(.*?)\]"', DOCKERFILE)
    assert set(extras.split(",")) == {"server", "mcp", "postgres"}


def test_the_image_runs_without_rights_and_as_its_health_check_expects() -> None:
    (user,), (volume,), (port,), (signal,) = map(instruction, ("USER", "VOLUME", "EXPOSE", "STOPSIGNAL"))
    assert int(user) > 0
    assert f"useradd --uid {user}" in DOCKERFILE
    assert f"INFINITE_MEMORY_STORE={volume}/chat.db" in DOCKERFILE
    assert signal == "SIGTERM"
    for words in (in_the_image(), *(one["command"] for one in COMPOSE["services"].values() if "command" in one)):
        assert parsed(words)["port"] == int(port)
        assert parsed(words)["host"] == "0.0.0.0"
    assert f"http://127.0.0.1:{port}{READY}" in health_check()


def health_check() -> str:
    """Return the program that asks for the health of the container."""
    (line,) = re.findall(r"^HEALTHCHECK .*?CMD (\[.*\])$", DOCKERFILE.replace("\\\n", " "), flags=re.MULTILINE)
    python, option, program = json.loads(line)
    assert (python, option) == ("python", "-c")
    return str(program)


def test_the_health_check_fails_when_the_server_is_not_ready(store: Store) -> None:
    own = create_app(SessionPool(store), Upstream("http://echo.invalid/v1", transport=EchoTransport()))

    def codes(url: str) -> int:
        program = health_check().replace("http://127.0.0.1:8765", url)
        env = {**os.environ, "NO_PROXY": "*"}
        return subprocess.run([sys.executable, "-c", program], env=env, capture_output=True, check=False).returncode

    with served(own) as (url, server):
        assert codes(url) == 0
        server.drain = 3600.0  # type: ignore[attr-defined]
        server.should_exit = True
        until(lambda: httpx.get(f"{url}{READY}").status_code == 503)
        assert codes(url) == 1
        server.drain = 0.0  # type: ignore[attr-defined]


def docker(*words: str | Path, **environment: str) -> subprocess.CompletedProcess[str]:
    env = {**os.environ, **environment}
    return subprocess.run(["docker", *words], env=env, capture_output=True, text=True, check=False)


@cache
def reason_without_docker() -> str | None:
    """Return why no image can be built here."""
    if not os.environ.get("IMAGE"):
        return "takes minutes and the network: `make image` builds it"
    if shutil.which("docker") is None:
        return "docker is not installed"
    done = docker("info")
    if done.returncode != 0:
        return f"no docker runs here: {done.stderr.strip().splitlines()[-1]}"
    base = instruction("FROM")[-1]
    there = any(docker(*words, base).returncode == 0 for words in (("image", "inspect"), ("pull", "--quiet")))
    return None if there else f"the image {base} is not here and cannot be pulled"


@pytest.mark.slow
def test_the_image_is_built_and_serves(tmp_path: Path) -> None:
    """Without a network, and as it is documented: read-only, without rights, stopped by a signal."""
    if (reason := reason_without_docker()) is not None:
        pytest.skip(reason)
    name = f"infinite-memory-test-{os.getpid()}"
    built = docker("build", "--file", DEPLOY / "Dockerfile", "--tag", name, ROOT)
    assert built.returncode == 0, built.stderr
    tokens = tmp_path / "tokens"
    tokens.write_text("ann ann-0123456789abcdef\n", encoding="utf-8")
    tokens.chmod(0o444)
    given = [*in_the_image(), "--model", "echo"]
    try:
        ran = docker(
            "run", "--detach", "--name", name, "--network", "none", "--read-only", "--tmpfs", "/tmp",
            "--volume", f"{tokens}:/run/secrets/tokens:ro", name, *given,
        )  # fmt: skip
        assert ran.returncode == 0, ran.stderr
        state = "{{.State.Health.Status}}"
        until(lambda: docker("inspect", "--format", state, name).stdout.strip() != "starting")
        logs = docker("logs", name).stderr
        assert docker("inspect", "--format", state, name).stdout.strip() == "healthy", logs
        assert "TokenFallbackWarning" not in logs
        assert docker("exec", name, "id", "--user").stdout == "10001\n"
        assert docker("stop", name).returncode == 0
        assert docker("inspect", "--format", "{{.State.ExitCode}}", name).stdout.strip() in ("0", "143")
    finally:
        docker("rm", "--force", "--volumes", name)
        docker("rmi", name)


# Compose


def test_compose_hangs_together() -> None:
    services, secrets, volumes = COMPOSE["services"], COMPOSE["secrets"], COMPOSE["volumes"]
    for service in services.values():
        image = service["image"]
        assert "build" in service or re.fullmatch(r"[\w/]+:[\w.-]*\d[\w.-]*", image), "a tag says which version"
        assert set(service.get("secrets", [])) <= set(secrets)
        assert {one.partition(":")[0] for one in service.get("volumes", [])} <= set(volumes)
        assert all(one.startswith("${ADDRESS:-127.0.0.1}:") for one in service.get("ports", []))
        for other, how in service.get("depends_on", {}).items():
            assert how["condition"] == "service_healthy"
            assert "healthcheck" in services[other], "the image's own says nothing of the database"
        if "command" in service:
            assert int(service["stop_grace_period"].removesuffix("s")) > parsed(service["command"])["grace"] + 10
            assert parsed(service["command"])["tokens"] == "/run/secrets/tokens"
            assert (ROOT / "deploy" / service["build"]["context"] / service["build"]["dockerfile"]).is_file()
    address = services["serve"]["environment"]["INFINITE_MEMORY_STORE"]
    own = services["database"]["environment"]
    assert address == f"postgresql://{own['POSTGRES_USER']}@database:5432/{own['POSTGRES_DB']}"
    assert services["mcp"]["environment"]["INFINITE_MEMORY_STORE"] == address
    asked = set(re.findall(r"\$\{(\w+)", json.dumps(COMPOSE)))
    assert all(f"`{name}`" in PAGE or f"{name}=" in PAGE for name in asked), "every variable is documented"


# systemd
