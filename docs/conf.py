from gcig._version import __version__

project = "gcig"
author = "The gcig developers"
copyright = "2026, the gcig developers"
version = release = __version__

extensions = [
    "sphinx.ext.autodoc",
    "sphinx.ext.autosummary",
    "sphinx.ext.mathjax",
    "sphinx.ext.viewcode",
    "numpydoc",
]
templates_path = ["_templates"]
html_static_path = ["_static"]
autosummary_generate = True
autodoc_typehints = "none"
default_role = "py:obj"
numpydoc_show_class_members = False
numpydoc_class_members_toctree = False
exclude_patterns = ["_build", "_templates"]
html_theme = "alabaster"
html_theme_options = {
    "description": "Procedural fairness in practice",
    "fixed_sidebar": True,
    "page_width": "1080px",
}
nitpicky = False
# Inherited docstrings of scikit-learn refer to labels of its own documentation.
suppress_warnings = ["ref.ref"]
