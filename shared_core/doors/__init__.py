"""The ways in from outside: the command, the page, the servers, and what both framework adapters share."""
