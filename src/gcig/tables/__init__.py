"""Tables: reading files, encoding into numbers, and splitting rows."""
