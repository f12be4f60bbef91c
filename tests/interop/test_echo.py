"""The answers of the models that need no key: what they quote, and from where."""

import pytest

from shared_core import Message, RecallTemplate
from shared_core.doors.interop.echo import Shown, echo, words

SAID = [("user", "My locker code is 4471."), ("assistant", "Noted.")]
CODE = "You said: My locker code is 4471."
NOTHING = "I was shown 2 messages, and nothing matches."
QUESTION = "What is my locker code?"
RECORD = RecallTemplate().render(
    [
        Message.user("Something else:\nmy locker code is 4471"),
        Message.assistant("Then write down the locker number."),
        Message.user("The locker code is 12, Ben says.", name="Ann"),
    ]
)


def test_it_quotes_the_line_that_answers(subtests: pytest.Subtests) -> None:
    rows: list[tuple[Shown, str]] = [
        ([*SAID, ("user", QUESTION)], CODE),
        ([*SAID, ("user", QUESTION), ("assistant", "You said: x"), ("user", QUESTION)], CODE),
        ([("user", f"{RECORD}\n\nTell me the locker number")], "I said: Then write down the locker number."),
        ([("user", f"{RECORD}\n\n{QUESTION}")], "You said: my locker code is 4471"),
        ([("user", f"{RECORD}\n\nWhich code did Ben say?")], "Ann said: The locker code is 12, Ben says."),
        ([("user", "Lockers open at six.\n\nWhen do lockers open?")], "It says: Lockers open at six."),
        ([("system", "Be brief.\nAll open at six."), ("user", "When do you open?")], "It says: All open at six."),
        ([("assistant", "The locker code is 1."), *SAID, ("user", QUESTION)], CODE),
        ([("user", "My code is 1."), ("user", "My code is 2."), ("user", "My code?")], "You said: My code is 2."),
        ([("user", "To Brac?"), ("assistant", "At 07:45."), ("user", "To Brac?")], "I said: At 07:45."),
        ([*SAID, ("user", "How is the weather?")], "I was shown 3 messages, and nothing matches."),
        ([("user", QUESTION), ("user", QUESTION)], NOTHING),
        ([("assistant", f"You said: {QUESTION[:-1]}"), ("user", QUESTION)], NOTHING),
        (SAID, "Noted. I was shown 2 messages."),
        ([("system", "Be brief.")], "I was shown 1 message, and no question."),
        ([], "I was shown 0 messages, and no question."),
    ]
    for shown, answer in rows:
        with subtests.test(shown=shown, answer=answer):
            assert echo(shown) == answer
            assert "".join(words(answer)) == answer


def test_what_tools_and_others_said_is_told_apart() -> None:
    assert echo([("tool", "Rain in Oslo: 4 mm"), ("user", "How much rain in Oslo?")]) == "tool said: Rain in Oslo: 4 mm"
