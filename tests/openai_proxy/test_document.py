"""docs/serve.md names every option, header and path."""

from typing import Any

from typer.main import get_command

from shared_core.doors.cli.command import app as command
from shared_core.doors.openai_proxy import app, endpoint, identity, responses_request
from tests.support.documents import ROOT

TEXT = (ROOT / "docs" / "serve.md").read_text(encoding="utf-8")


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
