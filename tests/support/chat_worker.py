"""A worker of the FastAPI example, without a port: `chat_worker.py ADDRESS` takes requests as lines of JSON."""

import asyncio
import json
import runpy
import sys
from pathlib import Path

from httpx import ASGITransport, AsyncClient

EXAMPLE = Path(__file__).parents[2] / "examples" / "langchain_fastapi.py"


async def serve(address: str) -> None:
    """Answer one request after the other, until there are no more lines."""
    app = runpy.run_path(str(EXAMPLE))["create_app"](address)
    async with (
        app.router.lifespan_context(app),
        AsyncClient(transport=ASGITransport(app), base_url="http://worker", timeout=None) as client,
    ):
        while line := await asyncio.to_thread(sys.stdin.readline):
            asked = json.loads(line)
            path, user = f"/chat/{asked['session']}", {"user": asked["user"]}
            answer = await client.post(path, json={"text": asked["text"]}, headers=user)
            sys.stdout.write(json.dumps(answer.raise_for_status().text) + "\n")
            sys.stdout.flush()


if __name__ == "__main__":
    asyncio.run(serve(sys.argv[1]))
