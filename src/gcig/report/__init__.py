"""Tables, pictures and pages: they read records of results, never models."""
