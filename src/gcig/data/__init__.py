"""Tables: reading files, encoding into numbers, splitting rows, and the registered datasets."""
