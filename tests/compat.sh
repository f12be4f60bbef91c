#!/usr/bin/env bash
# Each adapter with the oldest and the newest release of its framework that it allows, and the core without any: each in a
# new environment, build/compat/NAME. PYTHON makes them, python3 by default. Arguments: the names of those to run, by
# default all of them.
set -euo pipefail
cd "$(dirname "$0")/.."

only=("$@")
names=" core langchain-newest langchain-oldest llama-index-newest llama-index-oldest "
for name in "$@"; do
    if [[ "$names" != *" $name "* ]]; then echo "no environment '$name':$names" >&2; exit 2; fi
done

wanted() { # NAME
    [ ${#only[@]} -eq 0 ] || [[ " ${only[*]} " == *" $1 "* ]]
}

environment() { # NAME REQUIREMENT...
    "${PYTHON:-python3}" -m venv --clear "build/compat/$1"
    "build/compat/$1/bin/python" -m pip install --quiet --disable-pip-version-check "${@:2}"
}

adapter() { # EXTRA NAME REQUIREMENT...
    local extra=$1 name=$2 tests=("tests/${1//-/_}")
    if ! wanted "$name"; then return; fi
    if [ "$extra" = langchain ]; then tests+=(tests/cli/test_chat.py); fi
    environment "${@:2}" --editable ".[$extra,cli]" pytest pytest-timeout hypothesis blockbuster
    printf '\n%s:' "$name"
    "build/compat/$name/bin/python" -m pip freeze | grep -E '^(lang(chain|graph)|llama-index|pydantic=)' | tr '\n' ' ' | sed 's/^/ /'
    printf '\n'
    "build/compat/$name/bin/python" -m pytest -q -W default -rs "${tests[@]}"
}

bare() {
    if ! wanted core; then return; fi
    environment core --editable .
    build/compat/core/bin/python - <<'PYTHON'
from shared_core import InfiniteMemory, Message
from shared_core.errors import MissingExtraError

with InfiniteMemory(token_counter="characters/4") as memory:
    memory.add(Message.user("hello"))
try:
    from langchain_infinite_memory import InfiniteMemoryMiddleware
except MissingExtraError as error:
    assert 'pip install "infinite-memory[langchain]"' in str(error)
    print(f"core: works, and of LangChain it says: {error}")
else:
    raise SystemExit("core: LangChain is there, so that nothing can be shown without it")
PYTHON
}

mkdir -p build/compat

bare
adapter langchain langchain-newest 'langchain>=1.2,<2' 'langgraph-checkpoint-sqlite>=3' 'langchain-tests>=1.1.9,<1.2'
adapter langchain langchain-oldest langchain==1.2.0 langchain-core==1.2.1 langgraph==1.0.2 langgraph-prebuilt==1.0.2 \
    'langgraph-checkpoint-sqlite<4'
adapter llama-index llama-index-newest 'llama-index-core>=0.14.5,<0.15' 'pydantic>=2.14'
adapter llama-index llama-index-oldest llama-index-core==0.14.5 'pydantic<2.12'
