"""docs/serve.md: its programs run and print what it shows, and it names every option, header and path."""

import re
from pathlib import Path
from typing import Any

from typer.main import get_command

from shared_core import SessionPool
from shared_core.doors.cli.command import app as command
from shared_core.doors.openai_proxy import app, endpoint, identity, responses_request
from shared_core.doors.openai_proxy.app import create_app
from shared_core.doors.openai_proxy.echo_upstream import EchoTransport
from shared_core.doors.openai_proxy.upstream import Upstream
from shared_core.store import Store
from tests.openai_proxy.servers import served
from tests.support.documents import ROOT, blocks_of, run

TEXT = (ROOT / "docs" / "serve.md").read_text(encoding="utf-8")


def test_its_programs_print_what_it_shows(tmp_path: Path, store: Store) -> None:
    *clients, own = blocks_of("docs/serve.md", tmp_path)
    transport = EchoTransport()
    with served(create_app(SessionPool(store), Upstream("http://echo.invalid/v1", transport=transport))) as (url, _):
        for client in clients:
            text = client.read_text(encoding="utf-8").replace("http://127.0.0.1:8765", url)
            client.write_text(text, encoding="utf-8")
        ran = run([*clients, own], tmp_path)
    chat, *_, responses = re.findall(r"```text\n(.*?)```", TEXT, flags=re.DOTALL)
    assert [one.out for one in ran] == [chat, responses, ""]


def test_it_names_every_path_header_and_field() -> None:
    headers = [*identity.USER_HEADERS, *identity.SESSION_HEADERS, endpoint.REPORT, endpoint.MEMORY, endpoint.SESSION]
    fields = [
        *responses_request.OWN,
        *identity.USER_FIELDS,
        *identity.USER_METADATA,
        *identity.SESSION_METADATA,
        *identity.UNSET - {""},
    ]
    missing = [name for name in headers if f"`{name}".lower() not in TEXT.lower()]
    missing += [name for name in (*fields, *app.PATHS) if f"`{name}`" not in TEXT and f" {name}`" not in TEXT]
    assert missing == []


def test_it_names_every_option_of_the_command() -> None:
    group: Any = get_command(command)
    options = {one.opts[0] for one in group.get_command(None, "serve").params}
    unsaid = {option for option in options if f"{option}" not in TEXT}
    assert unsaid == {"--store", "--session", "--host", "--port", "--embedder"}, "docs/cli.md explains these"
