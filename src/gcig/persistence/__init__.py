"""Storage of plain values and tensors in a folder, without pickle.

A folder holds three files: ``manifest.json`` (format, kind, versions, size and SHA-256 of the other
two), ``model.json`` (a document of plain values) and ``tensors.safetensors``. Nothing in them is executed.
The checksums detect damage and accidental edits; they are not a signature, so a folder from someone else is
only as trustworthy as its source.
"""

from gcig.persistence.folder import (
    REPORT_FILES,
    PersistenceError,
    check_replaceable,
    fingerprint,
    load_folder,
    save_folder,
)

__all__ = [
    "REPORT_FILES",
    "PersistenceError",
    "check_replaceable",
    "fingerprint",
    "load_folder",
    "save_folder",
]
