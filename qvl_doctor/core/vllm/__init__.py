"""What each vLLM release accepts: read statically from its sources, kept as data, checked against a command."""
