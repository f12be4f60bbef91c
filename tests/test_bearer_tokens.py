"""Bearer tokens: whose request it is, what a file may hold, and which addresses need them."""

from pathlib import Path

import pytest

from shared_core.bearer_tokens import BearerTokens, is_loopback, require_tokens

ANN, BEN = "ann-0123456789abcdef", "ben-0123456789abcdef"


def test_a_token_says_who_sends_a_request(tmp_path: Path) -> None:
    path = tmp_path / "tokens.txt"
    path.write_text(f"# users\n\n{ANN} Ann Lee\n{BEN}  ben\n{ANN}-new Ann Lee\n")
    tokens = BearerTokens.read(path)
    assert [tokens.user_of(token) for token in (ANN, BEN, f"{ANN}-new")] == ["Ann Lee", "ben", "Ann Lee"]
    assert [tokens.user_of(token) for token in ("", "ann", ANN[:-1], f"{ANN}x", "\udcff" * 20)] == [None] * 5
    headers = [f"Bearer {ANN}", f"bearer  {ANN}", ANN, f"Basic {ANN}", "Bearer", "Bearer wrong", "", None]
    assert [tokens.user_of_header(header) for header in headers] == ["Ann Lee"] * 2 + [None] * 6
    assert ANN not in repr(vars(tokens)), "tokens are not kept"


@pytest.mark.parametrize(
    ("content", "error"),
    [
        ("", "there are no tokens"),
        ("short ann", "line 1: a token has at least 16 characters"),
        (f"{ANN}", "line 1: a token needs the name of its user"),
        (f"{ANN} ann\n{ANN} ben", "line 2: the token of an earlier line"),
    ],
)
def test_a_file_that_is_wrong_is_refused_without_naming_a_token(tmp_path: Path, content: str, error: str) -> None:
    path = tmp_path / "tokens.txt"
    path.write_text(content)
    with pytest.raises(ValueError, match=error) as raised:
        BearerTokens.read(path)
    assert ANN not in str(raised.value)
    with pytest.raises(ValueError, match="no space"):
        BearerTokens({f"{ANN} x": "ann"})


@pytest.mark.parametrize(
    ("host", "loopback"),
    [
        ("127.0.0.1", True), ("127.8.8.8", True), ("::1", True), ("localhost", True), ("LOCALHOST", True),
        ("0.0.0.0", False), ("::", False), ("192.168.0.1", False), ("localhost.example.org", False), ("", False),
    ],
)  # fmt: skip
def test_every_address_but_loopback_needs_tokens(host: str, loopback: bool) -> None:
    assert is_loopback(host) is loopback
    require_tokens(host, BearerTokens({ANN: "ann"}))
    if loopback:
        require_tokens(host, None)
    else:
        with pytest.raises(ValueError, match="--tokens FILE"):
            require_tokens(host, None)
