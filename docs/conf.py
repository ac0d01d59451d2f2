"""Sphinx's settings. `make docs` builds the site: pages of docs/, notebooks, and docstrings.

The source is the whole repository, so that links between its files are links of the site.
"""

import sys
from pathlib import Path

import jaxota

sys.path.insert(0, str(Path(__file__).parent / "extensions"))

project, author = "jaxota", "the jaxota authors"
project_copyright = author
version = release = jaxota.__version__

extensions = ["myst_nb", "sphinx.ext.autodoc", "docstrings", "gallery", "mathml"]
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

# Notebooks are run at full size, once for each change of their code; the tests, which run them
# smaller, build the site with `-D nb_execution_mode=off`.
nb_execution_mode = "cache"
nb_execution_cache_path = str(Path(__file__).parent.parent / "build" / "notebooks")
nb_execution_in_temp = True
nb_execution_timeout = 900
nb_execution_raise_on_error = True
nb_merge_streams = True

autodoc_member_order = "bysource"
autodoc_typehints = "none"  # shapes stand in the docstrings, where they are read more easily
autodoc_preserve_defaults = True
