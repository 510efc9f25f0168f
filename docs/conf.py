"""Sphinx settings. Pages need no network: formulas are MathML, and the theme ships its fonts and scripts."""

import re
import tomllib
from pathlib import Path
from zipfile import ZipFile

import nbformat
from docutils import nodes
from docutils.utils.math import latex2mathml
from nbclient import NotebookClient

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
    "sphinx_copybutton",
    "sphinx_design",
    "sphinx_gallery.gen_gallery",
]
templates_path = ["_templates"]
exclude_patterns = ["_build", "_templates"]
autosummary_generate = True
autodoc_typehints = "none"
default_role = "py:obj"
toc_object_entries_show_parents = "hide"  # the names of methods fit into the sidebar
numpydoc_show_class_members = False
numpydoc_class_members_toctree = False
# Inherited docstrings of scikit-learn refer to labels of its own documentation. A class in the settings of
# the gallery cannot be pickled, which only costs a rebuild.
suppress_warnings = ["ref.ref", "config.cache"]

html_theme = "pydata_sphinx_theme"
html_title = "gcig"
html_static_path = ["_static"]
html_css_files = ["pages.css"]
html_math_renderer = "mathml"
html_show_sourcelink = False
html_context = {"default_mode": "auto"}
html_theme_options = {
    "logo": {"text": "gcig"},
    "navbar_end": ["theme-switcher"],
    "navbar_persistent": ["search-button"],
    "secondary_sidebar_items": ["page-toc", "sg_download_links", "sg_launcher_links"],
    "show_nav_level": 2,
    "footer_start": ["copyright"],
    "footer_end": [],
}
html_sidebars = {"index": [], "api": []}

copybutton_exclude = ".linenos, .gp, .go"  # the prompt and the output of a command are not copied

_READING_ORDER = ("first_model", "audit_boosting", "own_loop", "paper")  # the others follow by name


class ReadingOrder:
    """The order of the examples."""

    def __init__(self, folder):
        self.folder = folder

    def __call__(self, file):
        """Return the key that examples are sorted by."""
        name = file.removeprefix("plot_").removesuffix(".py")
        return (_READING_ORDER.index(name) if name in _READING_ORDER else len(_READING_ORDER), name)


sphinx_gallery_conf = {
    "examples_dirs": "../examples",
    "gallery_dirs": "gallery",
    "within_subsection_order": ReadingOrder,
    "image_srcset": [],
    "write_computation_times": False,  # its pages load scripts from the network
    "ignore_repr_types": r"matplotlib|sklearn",
    "show_memory": False,
    "show_signature": False,
    "remove_config_comments": True,
    "abort_on_example_error": True,
    "reset_modules": ("matplotlib",),
}


def _mathml(node, *, as_block):
    """Return a formula as MathML; docutils puts the index of a letter with a hat below the letter."""
    text = latex2mathml.tex2mathml(node.astext(), as_block=as_block)
    index = r"(<mrow>.*?</mrow>|<m[in]>\w+</m[in]>)"
    hat = rf"<munderover>\s*(<mi>\w+</mi>)\s*{index}\s*(<mo[^>]*>[\^\u02c6]</mo>)\s*</munderover>"
    return re.sub(hat, r"<msub><mover>\1\3</mover>\2</msub>", text, flags=re.DOTALL)


def _inline_math(translator, node):
    translator.body.append(_mathml(node, as_block=False))
    raise nodes.SkipNode


def _block_math(translator, node):
    translator.body.append(f'<div class="math">{_mathml(node, as_block=True)}</div>')
    raise nodes.SkipNode


def _name_repository(_app, _name, source):
    """Insert the home of the repository and the version, in code blocks as well."""
    settings = tomllib.loads((Path(__file__).parents[1] / "pyproject.toml").read_text("utf-8"))
    repository = settings["project"]["urls"]["Repository"].removeprefix("https://github.com/")
    source[0] = source[0].replace("|repository|", repository).replace("v|release|", f"v{release}")


def _execute_notebooks(app):
    """Run the notebooks of the gallery, so that those who download one see its output."""
    gallery = Path(app.srcdir) / sphinx_gallery_conf["gallery_dirs"]
    for path in sorted(gallery.glob("*.ipynb")):
        notebook = nbformat.read(path, as_version=4)
        if not any(cell.get("outputs") for cell in notebook.cells):  # an example that changed
            quiet = ["--Application.log_level=ERROR"]  # no warning of every kernel about its local socket
            NotebookClient(notebook, timeout=600, extra_arguments=quiet).execute(cwd=str(gallery))
            nbformat.write(notebook, path)
    for path in gallery.glob("*.zip"):  # the gallery packed the notebooks before they had run
        with ZipFile(path) as packed:
            names = packed.namelist()
        with ZipFile(path, "w") as packed:
            for name in names:
                packed.write(gallery / name, name)


def setup(app):
    """Register the renderer of formulas, the values that pages name and the notebooks."""
    app.connect("source-read", _name_repository)
    app.connect("builder-inited", _execute_notebooks, priority=900)  # after the gallery is written
    app.add_html_math_renderer("mathml", (_inline_math, None), (_block_math, None))
