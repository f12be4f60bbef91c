"""Bearer tokens: whose request it is, what a file may hold, and which addresses need them."""

from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from shared_core.doors.serving.bearer_tokens import (
    ANY_USER,
    BearerTokens,
    is_loopback,
    require_named_users,
    require_tokens,
)
from shared_core.errors import InputFileError

ANN, BEN, GATEWAY = "ann-0123456789abcdef", "ben-0123456789abcdef", "gateway-0123456789abcdef"


def test_a_token_says_who_sends_a_request(tmp_path: Path) -> None:
    path = tmp_path / "tokens.txt"
    lines = ["\ufeff# users", "", f"Ann Lee {ANN}", f"  ben\t{BEN} ", f"Ann Lee  {ANN}-new", f"* {GATEWAY}"]
    path.write_text("\n".join(lines), encoding="utf-8")
    tokens = BearerTokens.read(path)
    known = [tokens.user_of(token) for token in (ANN, BEN, f"{ANN}-new", GATEWAY)]
    assert known == ["Ann Lee", "ben", "Ann Lee", ANY_USER]
    assert [tokens.user_of(token) for token in ("", "ann", ANN[:-1], f"{ANN}x", "\udcff" * 20)] == [None] * 5
    headers = [f"Bearer {ANN}", f"bearer  {ANN}", ANN, f"Basic {ANN}", "Bearer", "Bearer wrong", "", None]
    assert [tokens.user_of_header(header) for header in headers] == ["Ann Lee"] * 2 + [None] * 6
    assert ANN not in repr(vars(tokens)), "tokens are not kept"


@pytest.mark.parametrize(
    ("content", "error"),
    [
        ("", "there are no tokens"),
        (f"# ann {ANN}\n", "there are no tokens"),
        ("ann short", "line 1: a token has 16 or more ASCII characters"),
        (f"ann {ANN}é", "line 1: a token has 16 or more ASCII characters"),
        (f"{ANN} ann", "line 1: a token has 16 or more ASCII characters"),
        (f"\n{ANN}", "line 2: a token needs its user"),
        (f"ann {ANN}\nben {ANN}", "line 2: an earlier line has this token"),
        ("\udcff", "cannot read the tokens"),
    ],
)
def test_a_file_that_is_wrong_is_refused_without_naming_a_token(tmp_path: Path, content: str, error: str) -> None:
    path = tmp_path / "tokens.txt"
    path.write_text(content, encoding="utf-8", errors="surrogateescape")
    with pytest.raises(InputFileError, match=error) as raised:
        BearerTokens.read(path)
    assert ANN not in str(raised.value)


def test_what_no_file_can_hold_is_refused_as_well(tmp_path: Path) -> None:
    for users, error in (({}, "no tokens"), ({f"{ANN} x": "ann"}, "no space"), ({ANN: " "}, "needs its user")):
        with pytest.raises(ValueError, match=error):
            BearerTokens(users)
    with pytest.raises(InputFileError):
        BearerTokens.read(tmp_path / "none")


secrets = st.text(st.characters(min_codepoint=0x21, max_codepoint=0x7E), min_size=16, max_size=20)


@given(secrets, st.text(max_size=20) | secrets, st.integers(0, 15))
def test_only_a_token_s_own_text_opens(secret: str, other: str, at: int) -> None:
    tokens = BearerTokens({secret: "ann"})
    changed = secret[:at] + ("x" if secret[at] != "x" else "y") + secret[at + 1 :]
    assert tokens.user_of_header(f"Bearer {secret}") == "ann"
    assert tokens.user_of_header(f"Bearer {changed}") is None
    assert tokens.user_of_header(f"Bearer {other}") == ("ann" if other.strip() == secret else None)


def test_a_server_may_need_the_names_of_its_users() -> None:
    require_named_users(None)
    require_named_users(BearerTokens({ANN: "ann"}))
    with pytest.raises(ValueError, match="give each user a token"):
        require_named_users(BearerTokens({ANN: "ann", GATEWAY: ANY_USER}))


def test_every_address_but_loopback_needs_tokens(subtests: pytest.Subtests) -> None:
    rows: list[tuple[str, bool]] = [
        ("127.0.0.1", True),
        ("127.8.8.8:80", True),
        ("::1", True),
        ("[::1]", True),
        ("[::1]:8080", True),
        ("localhost", True),
        ("LOCALHOST:80", True),
        ("0.0.0.0", False),
        ("::", False),
        ("192.168.0.1", False),
        ("localhost.example.org", False),
        ("localhost:80.example.org", False),
        ("[::1].example.org", False),
        ("127.1", False),
        ("", False),
        ("example.org", False),
    ]
    for host, loopback in rows:
        with subtests.test(host=host, loopback=loopback):
            assert is_loopback(host) is loopback
            require_tokens(host, BearerTokens({ANN: "ann"}))
            if loopback:
                require_tokens(host, None)
            else:
                with pytest.raises(ValueError, match="--tokens FILE"):
                    require_tokens(host, None)
