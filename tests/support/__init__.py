"""Test support: example records, small runs and page parsing that several test files share."""
