"""Sphinx settings. Formulas become MathML, which browsers render without a script or a network connection."""

from docutils import nodes
from docutils.utils.math import latex2mathml

from gcig._version import __version__

project = "gcig"
author = "The gcig developers"
copyright = "2026, the gcig developers"
version = release = __version__

extensions = [
    "sphinx.ext.autodoc",
    "sphinx.ext.autosummary",
    "sphinx.ext.viewcode",
    "numpydoc",
]
templates_path = ["_templates"]
html_static_path = ["_static"]
html_math_renderer = "mathml"
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


def _inline_math(translator, node):
    translator.body.append(latex2mathml.tex2mathml(node.astext(), as_block=False))
    raise nodes.SkipNode


def _block_math(translator, node):
    translator.body.append(f'<div class="math">{latex2mathml.tex2mathml(node.astext(), as_block=True)}</div>')
    raise nodes.SkipNode


def setup(app):
    """Register the renderer of formulas."""
    app.add_html_math_renderer("mathml", (_inline_math, None), (_block_math, None))
