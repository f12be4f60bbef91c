"""What the adapters for LangChain and LlamaIndex share; no framework is imported here."""
