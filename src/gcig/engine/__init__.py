"""Hand-written, fast versions of `gcig.core` and `gcig.losses`; each names the readable one it equals."""
