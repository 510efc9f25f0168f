"""Datasets: the shipped ones, and the declaration, registry and card of any dataset."""
