"""The code of the documents, the examples and the notebook runs and prints what they show: all of it in one process."""

import contextlib
import io
import re
import shlex
from collections.abc import Iterator
from pathlib import Path

import nbformat
import pytest

from shared_core import InfiniteMemory, SessionPool
from shared_core.doors.cli.command import run as run_command
from shared_core.doors.openai_proxy.app import create_app
from shared_core.doors.openai_proxy.echo_upstream import EchoTransport
from shared_core.doors.openai_proxy.upstream import Upstream
from tests.openai_proxy.servers import served
from tests.support.documents import ROOT, Ran, blocks_of, run_in

DOCS, EXAMPLES = ROOT / "docs", ROOT / "examples"

PAGES = {
    "index.md": [
        "['You are a helpful travel agent.', 'We loved the Casa Azul by the river.', 'Noted.', 'Which hotel",
        "You said: We loved the Casa Azul by the river.\n",
        "You said: My locker code is 4471.\n",
    ],
    "python.md": [
        "Be brief. It is 9 o'clock.\nBe brief. It is 10 o'clock.\nAnswer in verse.\n4 messages are stored\n",
        "garden 2 When do I prune the roses?\nholiday 2 Where to in June\n['When do I prune the roses?',",
        "4471.', 'Noted.', 'What is my locker code?']\n['user', 'assistant']\n",
        "From the handbook:\n\nRefunds take five working days.",
        "1.0 The hotel in Porto takes €90 a night.\n0.0 The hotel in Porto ",
        "'Noted.', 'What is my locker code?'",
        "['Hello!']\n",
        "['user', 'assistant', 'tool']\n",
        "['My locker code is 4471.'",
    ],
    "prompt.md": [
        "Compose at scale\nHow a team of forty moved two hundred screens to Compose, and what it would do again.\n\n"
        "Kotlin on the server\n\nWhich talks are there?\n"
        "('1 of 2 retrieved passages given in less detail: they do not fit whole',)\n"
    ],
    "evaluate.md": ["\n1.0\nrecall=precise 0.0\n"],
    "explain.md": [
        "['My locker code is 4471.",
    ],
    "branches.md": [
        "The tokenizer never gets past a tab.",
        "main ['To Porto or to Faro?', 'To Porto.']\nmain-2 main-3\n",
        " 2\n",
    ],
    "summaries.md": [" messages are in it"],
    "tune.md": [
        "{'top_k': 3} 3\n{'top_k': 1} 1\n{'top_k': 0} 0\n",
        "ann ['My locker code is 4471.']\nben []\n",
        "[\"I'm vegan.\", 'Noted.']\n",
    ],
    "undo.md": [
        "4 undo merge idea 2\nundo undo merge idea 4\n",
        "['Hello!', 'Hi.'] main-2\n['Hello!', 'Hi.', 'Delete my account!!', 'Are you sure?']\n",
        "('m1',) would go, ('m2',) would stay\nTrue ['Noted.']\n",
    ],
    "migrate.md": ["202 messages are stored, "],
    "format.md": ["2 ['A. here: it hangs at a tab.', 'Then it never moves on.']\n"],
    "import.md": [
        "c1 Ferries 3\nWhich ferry goes to Brac?\n['main', 'version-b']\n",
        "\n- assistant: The one at 07:45.\n</earlier_messages>\n\nWhich ferry goes to Brac?\n",
    ],
    "serve.md": [
        "Noted. I was shown 1 message.\nYou said: My locker code is 4471.\n",
        "You said: My locker code is 4471.\n",
        "",
    ],
    "clients.md": ["Noted. I was shown 1 message.\nYou said: My locker code is 4471.\n"] * 2,
    "telemetry.md": [
        "add 2 ('u1', 'a1') {} ()\nsearch 2 ('u1', 'a1') {} ()\ncontext 0 () {'question': 10, 'window': 19} ()\n",
        "upsert_memory trip 1\nsearch_memory trip 1\n",
        "",
    ],
    "operations.md": ["My locker code is 4471.\n", "2 messages\n[]\n", "2 messages are erased\n"],
    "langchain.md": [
        "You said: My locker code is 4471.\n",
        "- user: My locker code is 4471.\n- assistant: Noted. I was shown 1 message.\n",
        "You said: My locker code is 4471.\nMy locker code is 4471.\n",
        "I was sent: 'Refunds take five working days.\\n\\nHow long is it?'\nI was sent: 'Thank you.'\n",
        " of 120 messages are sent\n",
        "- user: My locker code is 4471.\n- assistant: Noted.\n",
        "['Be brief.', 'My locker code is 4471.', 'Noted.'] 23\n",
        "user\n<earlier_messages>\n",
        "{'text': \"Dora's locker code is 4471.\"}\n[('user', 'dora')]\n",
    ],
    "langchain_reference.md": [
        "dora: You said: My locker code is 4471.\nemil: I was shown 1 message, and nothing matches.\n",
        "10 of 3596\n",
    ],
    "openai.md": [
        "Noted. I was shown 2 messages.\nNoted. I was shown 4 messages.\nYou said: My locker code is 4471.\n",
        "Noted. I was shown 2 messages.\nYou said: My locker code is 4471.\n",
        "It is sunny {}.\n['user', 'assistant', 'tool', 'assistant']\n",
        "{'role': 'user', 'content': 'What is my locker code?'}]\n3\n",
        "Which boat is this? 85\nTrue\n",
        "Noted. I was shown 2 messages.\nYou said: My locker code is 4471.\n",
        "Noted. I was shown 2 messages.\nYou said: My locker code is 4471.\n",
        "It is sunny in Porto.\n['user', 'assistant', 'tool', 'assistant']\n",
    ],
}
"""A part of what each block of a page prints."""

STORIES = {"README.md": "chat.py", "docs/server.md": "server.py", "docs/tutorial.md": "chat.py"}
"""Documents whose programs run one after the other in one folder, with the name of the first; all output is shown."""

IN_ONE_FOLDER = {"docs/langchain.md", "docs/format.md", "docs/import.md", *STORIES}
"""Documents whose programs read what the one before has written."""

SERVER = "http://127.0.0.1:8765"
"""The address of the server in the documents."""

ELSEWHERE = {"llama_index.md", "scaling.md"}
"""Pages whose blocks are run by other tests, as is the last one of `clients.md`, which needs LlamaIndex."""

EXAMPLE = {
    "quickstart.py": ["the code is 4093"],
    "openai_tools.py": [
        "> How is the weather in Porto?\nIn Porto the weather is sunny, 18 degrees.\n(6 messages are stored)\n",
        "> What is my locker code?\nYou said: My locker code is 4471.\n(208 messages are stored)\n",
        "and the first of them is {'role': 'system', 'content': 'You are brief.'}\n",
    ],
    "tracing.py": [
        " ms: record.count 607\n  infinite_memory.index ",
        "\n  search_memory ",
        "\n    infinite_memory.recall ",
        "\n    infinite_memory.embed ",
        "\n  delete_memory ",
        " spans; the first trace is ",
    ],
    "langchain_agent.py": [
        "> What was the code of my locker at the climbing hall?",
        "my locker at the climbing hall is number 118 and the code is 4093.",
        "Reminder set: to buy a watering can\n  (612 messages in the state)",
        "- user: We were at the allergist's today, Dr. Imhasly.",
        "  (610 messages in the state)\n\nmain: the reminder is not there\nbranch-1: the reminder is there\n",
    ],
    "langchain_chain.py": [
        "607 messages are stored\n\n",
        " of 800 tokens used\nYou said: ",
        "my locker at the climbing hall is number 118 and the code is 4093.",
        "**kiwi, cashew and pistachio**",
        "\n\n611 messages are stored\n",
    ],
    "langchain_fastapi.py": [
        "You said: The code of my locker is 4000.\n",
        "\n20 of 20 were reminded of their own code, 0 of somebody else's\n",
    ],
    "langchain_rag.py": [
        "[human] Refunds take five working days.\n\nRefunds go back to the card that was used.\n\n"
        "How long do refunds take?\n",
        "[human] How long do refunds take?\n[ai] It says: Refunds take five working days.\n"
        "[human] Vouchers are valid for a year.\n\nDo vouchers expire?\n",
        "apart\nHow long do refunds take?\n"
        "['Refunds take five working days.', 'Refunds go back to the card that was used.']\n",
    ],
    "migration/buffer_memory.py": ["\nYou said: My locker code is 4471.\nstored: 204 messages\n"],
    "migration/message_history.py": [
        "before: I do not know\nprune_messages and session_factory: 4471\nwith_infinite_memory: 4471\n"
    ],
    "migration/summary_buffer_memory.py": [
        "[system] What was said before: Alice plans a trip to Lisbon with two friends.\n",
        "- user: My seat is 14C.\n",
        "\n\nWhich seat is mine?\n",
    ],
    "migration/vector_store_memory.py": [
        "user: My favourite town is Lisbon.\nassistant: Noted.\n",
        "- user: My favourite town is Lisbon.\n",
        "\n\nWhich town is my favourite?\n",
    ],
}

TOKENS_TOLD = {"langchain_agent.py": 6, "langchain_chain.py": 2, "migration/buffer_memory.py": 1}
"""How often an example says what a prompt costs."""

NOTEBOOK = "examples/first_hour.ipynb"
CELLS = [
    "",
    "402\n",
    "[user] <earlier_messages>\n",
    " of 500 tokens (",
    "['My locker code is 4471.']\n",
    "'I hope you stayed dry.'\n",
    "on main: []\non holiday: ['To Porto: it is warm by then.'",
    "['Where do we go in June?',",
    "[]\n",
]
"""A part of what each cell shows."""

RUN_CELLS = """
import ast

scope = {{}}
for cell in {cells!r}:
    *before, last = ast.parse(cell).body
    exec(compile(ast.Module(before, []), "cell", "exec"), scope)
    exec(compile(ast.Interactive([last]), "cell", "single"), scope)
    print("{end}")
"""
"""A program that shows the value of the last line of each cell, as Jupyter does."""

END = "--- the end of a cell"

DATE = re.compile(r"\b\d{4}-\d\d-\d\d\b")
"""What differs from day to day."""

Documents = tuple[dict[str, list[Ran]], Path]
"""What the programs of each document did, by its path in the repository, and the folder that holds their folders."""


@pytest.fixture(scope="module")
def documents(tmp_path_factory: pytest.TempPathFactory) -> Documents:
    folder = tmp_path_factory.mktemp("documents")
    pool, upstream = SessionPool(), Upstream("http://echo.invalid/v1", transport=EchoTransport())
    with served(create_app(pool, upstream)) as (url, _):
        given = {name: programs_of(name, folder, url) for name in all_documents()}
        done = iter(run_in([one for programs in given.values() for one in programs]))
    return {name: [next(done) for _ in programs] for name, programs in given.items()}, folder


def all_documents() -> list[str]:
    pages, examples = (f"docs/{page}" for page in PAGES), (f"examples/{name}" for name in EXAMPLE)
    return [*pages, "docs/recipes.md", *STORIES, *examples, NOTEBOOK]


def programs_of(document: str, folder: Path, url: str) -> list[tuple[Path, Path]]:
    """Return the programs of a document, each with the folder that it is run in; the server is at an address."""
    home = folder / document.replace("/", " ")
    home.mkdir()
    if document.endswith(".py"):
        return [(ROOT / document, home)]
    programs = notebook_program(home) if document == NOTEBOOK else blocks_of(document, home)
    if document in STORIES:
        programs[0] = programs[0].rename(home / STORIES[document])
    for program in programs:
        program.write_text(program.read_text(encoding="utf-8").replace(SERVER, url), encoding="utf-8")
    if document == "README.md":
        programs *= 2  # on one file
    if document == "docs/clients.md":
        programs.pop()
    apart = document not in IN_ONE_FOLDER
    return [(one, home / f"run {number}" if apart else home) for number, one in enumerate(programs)]


def notebook_program(folder: Path) -> list[Path]:
    notebook = nbformat.read(ROOT / NOTEBOOK, as_version=4)  # type: ignore[no-untyped-call]
    nbformat.validate(notebook)
    cells = [cell for cell in notebook.cells if cell.cell_type == "code"]
    assert all(cell.outputs == [] and cell.execution_count is None for cell in cells), "it is committed without outputs"
    program = folder / "notebook.py"
    program.write_text(RUN_CELLS.format(cells=[cell.source for cell in cells], end=END), encoding="utf-8")
    return [program]


def test_every_page_and_every_example_is_run() -> None:
    with_code = {path.name for path in DOCS.glob("*.md") if "```python\n" in path.read_text(encoding="utf-8")}
    stories = {name.removeprefix("docs/") for name in STORIES}
    assert with_code == (set(PAGES) | ELSEWHERE | stories | {"recipes.md"}) - {"README.md"}
    files = {path.relative_to(EXAMPLES).as_posix() for path in EXAMPLES.rglob("*.py")}
    assert {name for name in files if "llama_index" not in name} == set(EXAMPLE)


@pytest.mark.parametrize("page", PAGES)
def test_the_blocks_of_a_page_print_what_is_expected(page: str, documents: Documents) -> None:
    for expected, block in zip(PAGES[page], documents[0][f"docs/{page}"], strict=True):
        assert expected in block.out
        said = [line for line in block.err.splitlines() if "LangChainDeprecationWarning" not in line]
        assert said == []  # LangChain warns of `RunnableWithMessageHistory`


@pytest.mark.parametrize("name", EXAMPLE)
def test_an_example_runs_without_a_network_and_leaves_no_file(name: str, documents: Documents) -> None:
    (ran,) = documents[0][f"examples/{name}"]
    for text in EXAMPLE[name]:
        assert text in ran.out
    assert "Oslo" not in ran.out, "another person's"
    used = re.findall(r"(\d+) of (\d+) tokens", ran.out)
    assert len(used) == TOKENS_TOLD.get(name, 0)
    assert all(int(total) <= int(budget) for total, budget in used)
    assert ran.files == []
    if name != "migration/message_history.py":  # which shows what LangChain has deprecated
        assert ran.err == ""


def test_the_notebook_runs_without_a_network_and_leaves_no_file(documents: Documents) -> None:
    (ran,) = documents[0][NOTEBOOK]
    *shown, rest = ran.out.split(f"{END}\n")
    assert (len(shown), rest, ran.err, ran.files) == (len(CELLS), "", "", [])
    for expected, text in zip(CELLS, shown, strict=True):
        assert expected in text


# What a document shows in full


def shown(document: str) -> Iterator[tuple[int, str]]:
    """Yield what a document shows of the output of its programs: the number of the program, and the text."""
    text, number = (ROOT / document).read_text(encoding="utf-8"), -1
    for kind, block in re.findall(r"^```(python|text)\n(.*?)^```", text, flags=re.DOTALL | re.MULTILINE):
        number += kind == "python"
        if kind == "text":
            yield number, block


@pytest.mark.parametrize("document", [*STORIES, "docs/recipes.md"])
def test_a_document_shows_what_its_programs_print(document: str, documents: Documents) -> None:
    ran = documents[0][document]
    outputs = list(shown(document))
    assert len(outputs) == {"README.md": 1, "docs/server.md": 1}.get(document, 5)
    for number, text in outputs:
        assert DATE.sub("DATE", ran[number].out) == DATE.sub("DATE", text)
    assert all(program.err == "" for program in ran)


def test_the_programs_of_the_readme_and_of_two_pages_go_on_where_they_ended(
    documents: Documents, monkeypatch: pytest.MonkeyPatch
) -> None:
    ran, folder = documents
    assert ran["README.md"][3].out.startswith("816 messages are stored")
    assert "My locker code is 4471." in ran["README.md"][3].out
    assert ran["docs/server.md"][1].out.count("\n") == 6
    assert "- user: My locker code is 4471.\n" in ran["docs/tutorial.md"][2].out
    assert (folder / "docs format.md" / "hang.md").is_file()
    home = folder / "docs tutorial.md"
    monkeypatch.chdir(home)
    text = (DOCS / "tutorial.md").read_text(encoding="utf-8")
    commands = re.findall(r"^\$ infinite-memory (.+)$", text, flags=re.MULTILINE)
    assert len(commands) == 4
    for command in commands:
        with contextlib.redirect_stdout(io.StringIO()) as out:
            assert run_command(shlex.split(command)) == 0, command
        assert out.getvalue()
    assert (home / "page.html").is_file()


def test_the_prompt_of_the_readme_is_of_the_parts_that_are_named(documents: Documents) -> None:
    with InfiniteMemory(documents[1] / "README.md" / "chat.db", system="You help.") as memory:
        assert len(memory.messages()) == 816
        sent = memory.context("Hi!").messages
    assert [message.content for message in sent if message.role == "system"] == ["You help."]
    readme = (ROOT / "README.md").read_text(encoding="utf-8")
    number = re.search(r"(\d+) are sent", readme)
    assert number is not None
    assert "the newest sixteen days" in readme
    assert int(number[1]) == 1 + 2 * 16 + 1


WORDING = "\n\n\n\nUse the above information to answer the following question:\n\n"
FLEET = {
    4: "user: I need help calculating route efficiency for my fleet.",
    5: "assistant: Route efficiency involves analyzing distance, traffic, and load weight.",
}
LAST = ["user: Thanks, that makes sense.", "assistant: You're welcome! Let me know if you need anything else."]


def test_what_recipes_show_is_what_their_write_ups_report() -> None:
    window, grounding, pairs, branch, pruned = (text for _, text in shown("docs/recipes.md"))
    assert "system Gradle. Compose? Compose. AI? - 3282 tokens" in window
    assert "[100, 6, 120, 6, 120, 1801] - 2153 tokens" in grounding
    paris, sydney, nothing = pairs.split("> ")[1:]
    assert paris.index("i like the eiffel") < paris.index("what are some popular") < paris.index(WORDING)
    assert "['0.60', '0.72']" in paris
    assert "Eiffel Tower.\n\n\n\nUse" in sydney
    assert "['0.52']" in sydney
    assert nothing == "what's my favorite sydney landmark\n\n[]\n"
    assert branch.splitlines()[0].startswith("main ['m1', 'r1', 'Summarise the fix', ")
    assert branch.splitlines()[1] == branch.splitlines()[2] == "debug ['m1', 'r1', 's1', 'sr1', 's2', 'sr2']"
    assert [prompt.splitlines() for prompt in pruned.strip().split("\n\n")] == [
        [FLEET[4], FLEET[5], *LAST, "user: Can we go back to the fleet math?"],
        [FLEET[4], FLEET[5], *LAST, "user: Can we return to the fleet math?"],
    ]
