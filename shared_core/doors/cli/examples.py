"""Examples of every command, shown at the end of its help."""

from collections.abc import Mapping, Sequence

__all__ = ["EXAMPLES", "epilog"]

EXAMPLES: Mapping[str, Sequence[str]] = {
    "import": ["import chatgpt-export.zip", "import shared.jsonl --session ana"],
    "backup": ["backup copy.db"],
    "restore": ["restore copy.db"],
    "copy": ["copy chat.db postgresql://app@localhost/chats", "copy chat.db new.db --user ana --verify"],
    "doctor": ["doctor", "doctor --recover saved.db"],
    "export": ["export chat.jsonl", "export debug.md --branch debug"],
    "view": ["view --out page.html", "view chat.db --out page.html --open"],
    "evaluate": [
        "evaluate --questions mine.jsonl",
        "evaluate chat.db --questions mine.jsonl --try recall=precise,thorough --try embedder=all-MiniLM-L6-v2",
    ],
    "mcp": ["mcp --user ann", "mcp --http --host 0.0.0.0 --tokens tokens.txt"],
    "serve": [
        "serve --upstream https://api.openai.com/v1 --window gpt-4o-mini=128000",
        "serve --host 0.0.0.0 --tokens tokens.txt --upstream http://localhost:11434/v1",
    ],
    "add": ['add "We loved the Casa Azul by the river."', "git log -1 | infinite-memory add -"],
    "chat": ["chat", 'chat --model openai:gpt-4o-mini --system "You plan journeys."'],
    "ask": ['ask "Which hotel did we like?"', 'ask "Which hotel did we like?" --max-tokens 2000'],
    "search": ["search Lisbon", 'search "hotel by the river" --since 2026-03-01 --role user'],
    "log": ["log -n 20", "log --graph"],
    "stats": ["stats", "stats --all-sessions"],
    "sessions": ["sessions -n 5", "sessions --all-users"],
    "title": ['title "Portugal in May" --session trip'],
    "rename-session": ['rename-session default "trip to Porto"'],
    "forget": ["forget --id 3f2a9c01", "forget --before 2026-01-01 --dry-run"],
    "branches": ["branches"],
    "tags": ["tags"],
    "checkout": ["checkout debug"],
    "fork": ["fork debug", "fork retry --at 3f2a9c01"],
    "rename": ["rename debug tokenizer"],
    "delete-branch": ["delete-branch debug"],
    "tag": ["tag decided", "tag decided --at 3f2a9c01"],
    "delete-tag": ["delete-tag decided"],
    "reset": ["reset main@{1}", "reset 3f2a9c01 --branch debug"],
    "undo": ["undo", "undo --branch debug"],
    "reflog": ["reflog --branch main"],
    "diff": ["diff debug", "diff debug main"],
    "merge": ["merge debug", "merge debug --how squash --model openai:gpt-4o-mini"],
    "cherry-pick": ["cherry-pick 3f2a9c01 77b0e2d4"],
    "rebase": ["rebase main --branch debug"],
    "stash": ["stash push", "stash pop"],
    "stash push": ['stash push --note "the second hotel"'],
    "stash list": ["stash list"],
    "stash apply": ["stash apply 1"],
    "stash pop": ["stash pop"],
    "stash drop": ["stash drop 1"],
    "download": ["download"],
    "completion": ["completion bash >> ~/.bashrc", "completion zsh >> ~/.zshrc"],
}
"""Command lines by the name of the command, each without the name of the program unless it does not begin with it."""


def epilog(command: str) -> str | None:
    """Return the end of a command's help; None for a command without examples, such as one of another package."""
    lines = EXAMPLES.get(command)
    if lines is None:
        return None
    shown = [line if "infinite-memory add" in line else f"infinite-memory {line}" for line in lines]
    return "\n".join(["\b", "Examples:" if len(shown) > 1 else "Example:", *(f"  {line}" for line in shown)])
