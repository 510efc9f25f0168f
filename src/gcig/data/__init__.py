"""Tables: the shipped datasets, their registry, splitting, and the encoding into tensors."""
