"""What some tests need and not every environment has: marks that skip them, and say why."""

from importlib.util import find_spec

import pytest

__all__ = ["PROVIDERS", "needs_providers"]

PROVIDERS = all(find_spec(name) for name in ("langchain_openai", "langchain_anthropic", "langchain_google_genai"))
"""Whether the providers' packages are here, whose formatters show what would be sent."""

needs_providers = pytest.mark.skipif(
    not PROVIDERS, reason="langchain-openai, langchain-anthropic and langchain-google-genai are not all installed"
)
