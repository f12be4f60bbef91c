"""A server that streams answers to many people at a time, each with a memory of their own.

Run it from the repository: `python examples/langchain_fastapi.py`. It sends 20 people at a time to the server
within this process, needs no network and no key, and leaves no file. It needs the packages fastapi and httpx.
With a real model: `init_chat_model("openai:gpt-4o-mini")` in place of `EchoChatModel()`, and a `max_tokens` that suits
it. To serve it: `uvicorn --app-dir examples --factory langchain_fastapi:create_app`, which keeps chat.db.
"""

import asyncio
import tempfile
from collections.abc import AsyncIterator
from contextlib import aclosing, asynccontextmanager
from pathlib import Path
from typing import Any

from fastapi import FastAPI, Header
from fastapi.responses import StreamingResponse
from httpx import ASGITransport, AsyncClient
from langchain_core.messages import HumanMessage
from langchain_core.runnables import RunnableConfig
from pydantic import BaseModel

from langchain_infinite_memory import with_infinite_memory
from langchain_infinite_memory.testing import EchoChatModel

PEOPLE = 20
TALK = "Let us talk about the weather of day {}: it rained a bit, then the wind came from the west and the sun shone."


class Said(BaseModel):
    """The body of a request."""

    text: str


class Answer(StreamingResponse):
    """A stream that ends at once when the caller goes away, so that what was sent until then is stored."""

    async def __call__(self, *connection: Any) -> None:
        """Send the stream."""
        stream: Any = self.body_iterator
        async with aclosing(stream):
            await super().__call__(*connection)


def create_app(store: str | Path = "chat.db") -> FastAPI:
    """Return the server: POST {"text": ...} to /chat/SESSION as a user, and the answer comes as it is made."""
    model = EchoChatModel()
    chain = with_infinite_memory(model, store=store, max_tokens=500, reserve_tokens=100)

    @asynccontextmanager
    async def closing(app: FastAPI) -> AsyncIterator[None]:
        yield
        chain.close()

    app = FastAPI(lifespan=closing)

    @app.post("/chat/{session_id}")
    async def chat(session_id: str, said: Said, user: str = Header(min_length=1)) -> Answer:
        # In your program, the user is the person who is logged in, and not whatever a request names.
        config: RunnableConfig = {"configurable": {"session_id": session_id, "user_id": user}}

        async def words() -> AsyncIterator[str]:
            answer: Any = chain.astream(HumanMessage(said.text), config)
            async with aclosing(answer):
                async for chunk in answer:
                    yield chunk.text

        return Answer(words(), media_type="text/plain")

    return app


async def converse(client: AsyncClient, number: int) -> str:
    """Tell a code, talk of other things until it is far away, and ask for it."""

    async def say(text: str) -> str:
        response = await client.post("/chat/main", json={"text": text}, headers={"user": f"person-{number}"})
        return response.raise_for_status().text

    await say(f"The code of my locker is {4000 + number}.")
    for day in range(8):
        await say(TALK.format(day))
    return await say("What is the code of my locker?")


async def main() -> None:
    """Talk to the server as 20 people at a time, each in a session called main."""
    with tempfile.TemporaryDirectory() as folder:
        app = create_app(Path(folder) / "chat.db")
        async with (
            app.router.lifespan_context(app),
            AsyncClient(transport=ASGITransport(app), base_url="http://server", timeout=None) as client,
        ):
            answers = await asyncio.gather(*(converse(client, number) for number in range(PEOPLE)))
    print(answers[0])
    own = sum(f"code of my locker is {4000 + number}." in answer for number, answer in enumerate(answers))
    others = sum(answer.count("code of my locker is") for answer in answers) - own
    print(f"\n{own} of {PEOPLE} were reminded of their own code, {others} of somebody else's")


if __name__ == "__main__":
    asyncio.run(main())
