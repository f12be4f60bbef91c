"""The MCP server: the verbs of a memory as tools."""
