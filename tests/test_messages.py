"""A message is a value: a changed copy is a message like any other, and leaves the original alone."""

import copy
import pickle
from typing import Any

import pytest

from shared_core.messages import Message
from shared_core.testing.store_contract.message_contract import RICH


@pytest.mark.parametrize("given", [{}, RICH])
@pytest.mark.parametrize("changes", [{}, {"id": "m1", "turn_id": None}, {"content": "new", "pinned": False}])
def test_a_changed_copy_is_a_message_like_any_other(given: dict[str, Any], changes: dict[str, Any]) -> None:
    first = Message.user("old", **given)
    before = first.model_dump_json()
    made = first.replace(**changes)
    assert made == first.model_copy(update=changes) == Message(**{"role": "user", "content": "old", **given, **changes})
    assert made.model_fields_set == first.model_fields_set | changes.keys()
    assert (hash(made), made.model_dump_json()) == (
        hash(copy.deepcopy(made)),
        pickle.loads(pickle.dumps(made)).model_dump_json(),
    )
    assert first.model_dump_json() == before
    with pytest.raises(ValueError, match="frozen"):
        made.content = "other"
