"""What LangChain itself retires: chains and chat message histories, kept as they are for programs that have them."""
