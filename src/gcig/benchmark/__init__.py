"""The benchmark: trials of methods on tables, the store that survives a crash, tuning, and statistics."""
