"""The shipped datasets: one file each, with their declaration, registry and cards."""
