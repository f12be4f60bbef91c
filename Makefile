# make demo    a virtual environment with the core; the example conversation, three questions to it, a branch and its merge
# make test    all extras and tools, then the whole suite; with COVERAGE=1, what it covers of the branches, too
# make check   ruff, formatting, mypy
# make soak    the long versions: 2,000 examples a property, 200 kills, 300 mutants
# make load    eight workers on one PostgreSQL server, or four on one file, that are killed while servers restart: 5 minutes
# make servers the store on another version of PostgreSQL, through PgBouncer and with a standby, where these are installed
# make clients the server with OpenAI's SDK for TypeScript and LlamaIndex's OpenAILike, where npm is installed
# make clients-large the server with Open WebUI, driven in Chromium, and aider: 3 minutes, and 5 GB to install
# make image   the container image, built, started and asked, where docker runs
# make compat  the adapters with the oldest and the newest LangChain and LlamaIndex, each in an environment of its own
# make docs    the documentation as a site, in site/
# make clean   remove everything these made

PYTHON ?= python3
VENV ?= .venv
CONVERSATION = examples/data/conversation.json
DEMO_STORE = build/demo/chat.db
QUESTION_1 = What was the code of my locker at the climbing hall?
QUESTION_2 = What was our final budget for the Portugal holiday?
QUESTION_3 = What noisy present did my sister post to us?

BIN = $(VENV)/bin
PIP = $(BIN)/python -m pip install --quiet --disable-pip-version-check --constraint constraints.txt
COMMAND = $(BIN)/infinite-memory
# Of pytest's plugins only ours: langchain-tests brings eight more, and each is rewritten and imported in every process.
PLUGINS = --disable-plugin-autoload $(addprefix -p ,xdist pytest_cov timeout hypothesispytest)
# Two processes, each file in one of them, so that a model is loaded once for all tests that share it. The order of the
# names ends with short files; by the number of tests, the long laws would be last, and one process would wait for them.
TOGETHER = $(PLUGINS) --numprocesses=2 --dist=loadfile --no-loadscope-reorder
PACKAGES = $(wildcard shared_core langchain_infinite_memory llama_index_infinite_memory)
TYPED = $(PACKAGES) tests examples benchmarks

export HF_HUB_OFFLINE = 1
export NO_MKDOCS_2_WARNING = 1
export PIP_NO_INPUT = 1
# Some images set it; then each of the many processes that the tests start compiles the packages anew.
unexport PYTHONDONTWRITEBYTECODE

.PHONY: demo test check soak load servers clients clients-large image compat docs clean
.NOTPARALLEL:

demo: export INFINITE_MEMORY_STORE = $(DEMO_STORE)
demo: $(VENV)/core.stamp
	@rm -rf $(dir $(DEMO_STORE))
	@mkdir -p $(dir $(DEMO_STORE))
	$(COMMAND) import $(CONVERSATION)
	@echo
	$(COMMAND) explain "$(QUESTION_1)"
	@echo
	$(COMMAND) explain "$(QUESTION_2)"
	@echo
	$(COMMAND) explain "$(QUESTION_3)"
	@echo
	$(COMMAND) fork azores
	$(COMMAND) add --branch azores "And if we went to the Azores next spring?"
	$(COMMAND) add --branch azores --role assistant "Then with stops: flights from Basel go through Lisbon."
	$(COMMAND) add --branch main "I have to take the climbing shoes back on Friday."
	$(COMMAND) add --branch main --role assistant "Noted: climbing shoes, Friday."
	@echo
	$(COMMAND) merge azores --branch main
	$(COMMAND) log --graph --limit 6

test: $(VENV)/dev.stamp
	$(BIN)/python -m pytest $(TOGETHER) $(if $(COVERAGE),$(addprefix --cov=,$(PACKAGES)) --cov-report=term)

check: $(VENV)/dev.stamp
	$(BIN)/ruff check .
	$(BIN)/ruff format --check .
	$(BIN)/mypy $(TYPED)

soak: $(VENV)/dev.stamp
	SOAK=1 $(BIN)/python -m pytest $(TOGETHER) --timeout=3600
	$(BIN)/python tests/mutants.py

load: $(VENV)/dev.stamp
	SOAK=1 $(BIN)/python -m pytest $(PLUGINS) tests/load

servers: $(VENV)/dev.stamp
	SERVERS=1 $(BIN)/python -m pytest $(PLUGINS) tests/stores/test_installed_servers.py -rs

# In a folder of their own: node's packages, and an older openai than ours.
clients: export CLIENTS = build/clients
clients: $(VENV)/dev.stamp
	@rm -rf $(CLIENTS)
	@mkdir -p $(CLIENTS)
	cp tests/openai_proxy/clients/package*.json $(CLIENTS)
	cd $(CLIENTS) && if command -v npm >/dev/null; then npm ci --silent --no-audit --no-fund; fi
	$(BIN)/python -m pip install --quiet --disable-pip-version-check --no-deps --target $(CLIENTS)/llama_index \
	    --requirement tests/openai_proxy/clients/requirements.txt
	$(BIN)/python -m pytest $(PLUGINS) -rs \
	    tests/openai_proxy/test_installed_clients.py tests/openai_proxy/test_clients_page.py tests/llama_index/test_overflow.py

clients-large: export CHAT_PROGRAMS = build/programs
clients-large: $(VENV)/dev.stamp
	for program in open-webui aider; do \
	    $(PYTHON) -m venv $(CHAT_PROGRAMS)/$$program && \
	    $(CHAT_PROGRAMS)/$$program/bin/python -m pip install --quiet --disable-pip-version-check \
	        --requirement tests/openai_proxy/clients/$$program.txt || exit 1; \
	done
	$(BIN)/python -m pytest $(PLUGINS) -rs tests/openai_proxy/test_chat_programs.py

image: $(VENV)/dev.stamp
	IMAGE=1 $(BIN)/python -m pytest $(PLUGINS) tests/project/test_deploy.py -rs

compat:
	PYTHON=$(PYTHON) tests/compat.sh

docs: $(VENV)/dev.stamp
	$(BIN)/mkdocs build --strict

clean:
	rm -rf $(VENV) build dist site .coverage .hypothesis .mypy_cache .pytest_cache .ruff_cache
	find . -name __pycache__ -type d -prune -exec rm -rf {} +

$(BIN)/python:
	$(PYTHON) -m venv $(VENV)

$(VENV)/core.stamp: pyproject.toml constraints.txt | $(BIN)/python
	$(PIP) --editable '.[cli]'
	touch $@

# torch goes first: by itself it is resolved to the build that is at hand, later it could pull the CUDA one.
$(VENV)/dev.stamp: pyproject.toml constraints.txt | $(BIN)/python
	$(PIP) torch
	$(PIP) --editable '.[all,dev]'
	touch $@ $(VENV)/core.stamp
