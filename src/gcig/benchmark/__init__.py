"""The benchmark: what is run (cells of tables), what survives a crash (the store), and what comes out."""
