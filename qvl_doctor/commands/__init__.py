"""One module a command: gathers its inputs at the edges, calls the core, returns what to print."""
