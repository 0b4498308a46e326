"""What reads the world: shipped tables, the GPU driver, processes, servers, files."""
