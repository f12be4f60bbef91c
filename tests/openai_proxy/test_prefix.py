"""What is sent to the model begins, byte for byte, as the request before it did before its question."""

import json
from collections.abc import Iterator
from itertools import pairwise
from typing import Any

import pytest

from shared_core import Message, SessionPool
from shared_core.doors.openai_proxy.chat_request import read_chat_request
from shared_core.doors.openai_proxy.prompts import Prompts
from tests.prompt.test_prefix import SETTINGS

TURNS = 56
SYSTEM = {"role": "system", "content": "Be brief."}


def asked(number: int) -> dict[str, Any]:
    """A question of 200 tokens that asks for an old answer, with its fields in an order of its own."""
    return {"content": f"why{number} word{number - 45}", "role": "user"}


def answered(number: int) -> dict[str, Any]:
    return {"refusal": None, "content": f"word{number} word{number}", "role": "assistant"}


def histories(*, whole: bool) -> Iterator[list[dict[str, Any]]]:
    """The messages of each request, from a client that sends all it has, or only what is new."""
    said: list[dict[str, Any]] = []
    for number in range(TURNS):
        yield [SYSTEM, *said, asked(number)]
        said += [asked(number), answered(number)] if whole else []


@pytest.mark.parametrize("whole", [True, False])
def test_a_request_begins_as_the_one_before(whole: bool) -> None:
    """39 turns fit. With one more, 22 to 29 are sent, from a turn whose number is a multiple of eight."""
    requests: list[list[str]] = []
    with SessionPool(**SETTINGS) as pool:
        prompts = Prompts(pool)
        for number, messages in enumerate(histories(whole=whole)):
            sent, session = read_chat_request({"messages": messages}), None if whole else "s"
            request = prompts.read(sent, user=None, session=session, shared=False)
            prompted = prompts.prompt(request, user=None, session=session, report=False)
            prompts.keep(prompted, [Message.from_openai(answered(number))])
            requests.append([json.dumps(message) for message in prompted.messages or ()])
    recalling = [number for number, request in enumerate(requests) if request[-1].count(f"word{number - 45}") > 1]
    assert recalling[-9:] == list(range(TURNS - 9, TURNS))
    prefixes = [(one[:-1], other[: len(one) - 1]) for one, other in pairwise(requests)]
    assert [number for number, (before, after) in enumerate(prefixes, 1) if before != after] == [40, 46, 54]
