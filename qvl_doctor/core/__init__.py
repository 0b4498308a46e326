"""What decides: pure functions over frozen values; no I/O, clock or environment."""
