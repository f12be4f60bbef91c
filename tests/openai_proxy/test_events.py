"""What the hook of a server's pool is told: what was done for a user, and nothing of what the server does beside."""

from shared_core.events import MemoryEvent, with_content
from tests.openai_proxy.servers import proxied
from tests.openai_proxy.test_inspector import Page

Told = tuple[str, str | None, str, str | None]


def test_the_first_prompt_of_a_conversation_is_its_user_s_and_has_no_session() -> None:
    told: list[Told] = []

    def hook(event: MemoryEvent) -> None:
        told.append((event.name, event.user_id, event.session_id, event.query))

    settings = {"on_event": with_content(hook)}
    with proxied(lambda _: "Noted.", settings=settings, inspector=True) as (url, _):
        for user in ("ann", None):
            page = Page(url, user=user)
            with page.client:
                page.say("Hello")
                (session,) = [one["session_id"] for one in page.get("sessions")["sessions"]]
            assert told == [("context", user, "", "Hello"), ("follow", user, session, None)]
            told.clear()


def test_prompts_that_the_page_builds_are_no_events() -> None:
    told: list[str] = []
    settings = {"on_event": lambda event: told.append(event.name)}
    with proxied(lambda _: "Noted.", settings=settings, inspector=True) as (url, _):
        page = Page(url)
        with page.client:
            page.say("Hello", "Hi", "How are you?", session="s")
            told.clear()
            assert len(page.get("session", session="s")["reports"]) == 2
            assert told == []
            page.get("search", query="hello")
            assert told == ["search"], "what the user does is one"
