"""Sphinx settings. `make docs` builds the site from docs/, the notebooks and the docstrings.

The source folder is the repository itself, so links between its files work on the site, too.
"""

import re
import sys
from pathlib import Path

from sphinx.roles import XRefRole

import jaxota

sys.path.insert(0, str(Path(__file__).parent / "extensions"))

project, author = "jaxota", "the jaxota authors"
project_copyright = author
version = release = jaxota.__version__

extensions = ["myst_nb", "sphinx.ext.autodoc", "sphinx.ext.napoleon", "gallery", "mathml"]
root_doc = "docs/index"
include_patterns = ["*.md", "docs/*.md", "docs/api/*.md", "notebooks/*.ipynb"]
exclude_patterns = ["**/.*", ".*", "benchmarks", "build", "dist", "figures", "jaxota", "tests"]

html_theme = "sphinx_book_theme"
html_title = "jaxota"
html_theme_options = {
    "home_page_in_toc": True,
    "use_download_button": True,
    "use_fullscreen_button": False,
    "show_navbar_depth": 1,
    "navbar_persistent": [],  # one field for searching is enough
}
html_static_path = ["_static"]
html_css_files = ["jaxota.css"]
html_extra_path = ["_redirect"]
html_show_sourcelink = False
html_copy_source = True  # the download button gives a notebook as it stands in the repository
html_math_renderer = "mathml"

myst_enable_extensions = ["dollarmath", "colon_fence"]
myst_heading_anchors = 3

# Notebooks run at full size, again only when their code changes. The tests run smaller versions
# and build the site with `-D nb_execution_mode=off`.
nb_execution_mode = "cache"
nb_execution_cache_path = str(Path(__file__).parent.parent / "build" / "notebooks")
nb_execution_in_temp = True
nb_execution_timeout = 900
nb_execution_raise_on_error = True
nb_merge_streams = True

autodoc_member_order = "bysource"
autodoc_typehints = "none"  # the docstrings state the shapes, which are easier to read there
autodoc_preserve_defaults = True

# One list for arguments and one for attributes; `name, other: ...` stays one entry.
napoleon_numpy_docstring = False
napoleon_use_param = False
napoleon_custom_sections = [("Attributes", "params_style"), ("Constants", "params_style")]
default_role = "code-link"


class CodeLink(XRefRole):
    """Code in single backticks: a link if it begins with a public name, such as `jo.cotaf(...)`."""

    def process_link(self, env, refnode, has_explicit_title, title, target):
        refnode["refdomain"], refnode["reftype"] = "py", "obj"
        refnode["py:module"] = env.ref_context.get("py:module")
        name = re.match(r"[\w.]*", title)[0]
        return title, re.sub(r"^jo\.", "jaxota.", name)


def escape(app, what, name, thing, options, lines) -> None:
    """Escape stars, bars and trailing underscores outside backticks, such as |S^r| and *args."""
    pieces = re.split(r"(`[^`]+`)", "\n".join(lines))
    pieces[::2] = [re.sub(r"([*|\\]|_\b(?!\w))", r"\\\1", piece) for piece in pieces[::2]]
    # "users: N." is no list that begins with item N.
    text = re.sub(r"(^ *|: )(\w)\.(?=\s|$)", r"\1\2\\.", "".join(pieces), flags=re.M)
    lines[:] = text.split("\n")


def setup(app):
    app.add_role("code-link", CodeLink())
    # Before napoleon (priority 500), which adds stars of its own around names.
    app.connect("autodoc-process-docstring", escape, priority=400)
