"""Measurements of cost and quality: `make bench`, `make quality`, `make methods`."""
