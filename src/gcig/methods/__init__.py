"""FairX and the methods that it is compared with: one file each, one interface."""

from gcig.methods.registry import METHODS, Method, register_method

__all__ = ["METHODS", "Method", "register_method"]
