"""JSON and tensors to and from a folder, without pickle; knows no classes.

A folder holds three files: ``manifest.json`` (format, kind, versions, size and SHA-256 of the other
two), ``model.json`` (a document of plain values) and ``tensors.safetensors``. Nothing in them is ever
executed. The checksums find damage and edits made by mistake; they are no signature, so a folder from
someone else is only as trustworthy as the way it came.
"""

from gcig.persistence.error import PersistenceError
from gcig.persistence.folder import REPORT_FILES, check_replaceable, load_folder, save_folder

__all__ = ["REPORT_FILES", "PersistenceError", "check_replaceable", "load_folder", "save_folder"]
