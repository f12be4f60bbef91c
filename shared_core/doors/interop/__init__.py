"""Parts that the adapters for LangChain and LlamaIndex share. No framework is imported here."""
