"""Datasets: one file each for the shipped ones, and their declaration, registry and cards."""
