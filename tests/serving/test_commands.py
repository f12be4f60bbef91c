"""The commands that serve, `serve` and `mcp`: they take one file of tokens, and refuse the same in the same words."""

from pathlib import Path

import pytest

from shared_core.doors.cli.command import run
from shared_core.doors.cli.serve_commands import installed_extra
from shared_core.errors import MissingExtraError

TOKEN = "token-0123456789abcdef"

COMMANDS = [["serve", "--model", "echo"], ["mcp", "--http"]]


def errors(capsys: pytest.CaptureFixture[str], *options: str) -> set[str]:
    """Return what the commands say that are to serve a store with some options, and refuse."""
    said = set()
    for command in COMMANDS:
        assert run([*command, "--port", "0", *options]) == 2
        out, err = capsys.readouterr()
        assert (out, err.count("\n")) == ("", 1)
        said.add(err)
    assert not Path("chat.db").exists()
    return said


@pytest.fixture(autouse=True)
def folder(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    Path("tokens").write_text(f"ann {TOKEN}\n", encoding="utf-8")
    Path("swapped").write_text(f"{TOKEN} ann\n", encoding="utf-8")


@pytest.mark.parametrize(
    ("options", "expected"),
    [
        (["--tokens", "none"], "cannot read the tokens in 'none': No such file or directory"),
        (["--tokens", "swapped"], "'swapped', line 1: a token has 16 or more ASCII characters"),
        (["--host", "0.0.0.0"], "other machines reach '0.0.0.0': pass --tokens FILE"),
        (["--host", "192.0.2.1", "--tokens", "tokens"], "cannot listen at 192.0.2.1, port 0"),
    ],
)
def test_both_say_the_same(capsys: pytest.CaptureFixture[str], options: list[str], expected: str) -> None:
    (said,) = errors(capsys, *options)
    assert expected in said
    assert TOKEN not in said


def test_an_extra_that_is_not_installed_is_named() -> None:
    packages = {"uvicorn", "starlette"}
    with (
        pytest.raises(MissingExtraError, match=r'needs both: pip install "infinite-memory\[server\]"') as raised,
        installed_extra("server", "both", packages),
    ):
        raise ModuleNotFoundError(name="uvicorn.config")
    assert raised.value.name == "uvicorn"
    for defect in (ModuleNotFoundError(name="shared_core.doors.openai_proxy.nothing"), ImportError(name="uvicorn")):
        with pytest.raises(ImportError) as shown, installed_extra("server", "both", packages):
            raise defect
        assert shown.value is defect
