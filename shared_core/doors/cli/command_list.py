"""All commands in groups, each with its module and a line that says what it does.

`--help` prints this list, so that it need not import any command.
"""

from collections.abc import Mapping

__all__ = ["COMMANDS", "GROUPS"]

GROUPS: Mapping[str, Mapping[str, tuple[str, str]]] = {
    "Everyday": {
        "chat": ("chat", "Chat with a model that remembers."),
        "add": ("message_commands", "Store a message at the end of a branch."),
        "search": ("message_commands", "List the messages that match a query, best first."),
        "explain": ("message_commands", "Show how the prompt for a question is made up, and why."),
        "log": ("message_commands", "Print the conversation on a branch, oldest message first."),
        "show": ("message_commands", "Print a message whole."),
        "status": ("session_commands", "Say where you are, and how much is stored."),
        "sessions": ("session_commands", "List the conversations of a user, newest first."),
        "undo": ("branch_commands", "Take back the last command that moved a branch."),
        "forget": ("message_commands", "Erase messages for good, on all branches."),
        "import": ("file_commands", "Store the messages of a file."),
        "export": ("file_commands", "Write a conversation to a file that can be shared."),
        "view": ("file_commands", "Open an HTML page that shows a conversation."),
    },
    "Branches": {
        "branches": ("branch_commands", "List the branches and the newest message of each."),
        "fork": ("branch_commands", "Create a branch and check it out."),
        "checkout": ("branch_commands", "Check out a branch: later commands work on it."),
        "merge": ("branch_commands", "Merge another branch into a branch; the other one stays."),
        "diff": ("branch_commands", "List the messages that only one of two revisions has."),
        "cherry-pick": ("branch_commands", "Copy messages to a branch."),
        "rebase": ("branch_commands", "Move a branch, with its own messages, onto a revision."),
        "reset": ("branch_commands", "Move the end of a branch; undo takes it back."),
        "stash": ("branch_commands", "Put the end of a branch aside, or bring it back."),
        "reflog": ("branch_commands", "List how branches were moved and where they ended before."),
        "tag": ("branch_commands", "Give a message a name that never moves, or list these names."),
        "rename": ("branch_commands", "Rename a branch."),
        "delete-branch": ("branch_commands", "Delete a branch; its messages stay stored."),
    },
    "Store": {
        "title": ("session_commands", "Give a conversation a title, which sessions lists."),
        "rename-session": ("session_commands", "Give a conversation another ID; it keeps everything."),
        "stats": ("store_commands", "Count everything in the store, of all users."),
        "evaluate": ("store_commands", "Measure recall with your own questions."),
        "backup": ("store_commands", "Copy the whole store while others use it."),
        "restore": ("store_commands", "Put a backup in the place of the store."),
        "copy": ("store_commands", "Copy a store, or what is new, to another."),
        "doctor": ("store_commands", "Check the whole store, or save what can be read of it."),
        "download": ("store_commands", "Fetch the MiniLM model for new conversations."),
    },
    "Servers": {
        "serve": ("serve_commands", "Serve the memory to any OpenAI client, as a proxy."),
        "mcp": ("serve_commands", "Serve the memory as tools to MCP clients."),
    },
}
"""The commands by their names, in the order of `--help`: the module in this folder, and the first line of the help."""

COMMANDS = {name: one for group in GROUPS.values() for name, one in group.items()}
