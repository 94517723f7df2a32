"""The documentation site, by Sphinx: `make docs`."""

import ast
import base64
import hashlib
import importlib.util
import os
import re
import sys
from pathlib import Path

import nbformat
from jupyter_cache import get_cache
from sphinx.application import Sphinx
from sphinx.environment import BuildEnvironment

HERE = Path(__file__).parent
ROOT = HERE.parent
LIBRARY = [str(ROOT), str(ROOT / "scripts" / "editable")]  # of this checkout, whatever the environment has
sys.path[:0] = [*LIBRARY, str(HERE)]

from including import WHOLE, link_from, page_of  # noqa: E402, found by the line above

for _path, _page in WHOLE.items():
    (HERE / f"{_page}.md").write_text(page_of(_path))

project = "sparse-topk"
author = "the authors of sparse-topk"
copyright = "the authors of sparse-topk, Apache-2.0"

extensions = [
    "myst_nb",
    "sphinx.ext.autodoc",
    "sphinx.ext.autosummary",
    "sphinx.ext.napoleon",
    "sphinx.ext.viewcode",
    "sphinx.ext.mathjax",
    "sphinx_copybutton",
    "sphinx_design",
]
exclude_patterns = ["_build"]
templates_path = ["_templates"]  # of the page of a function or class
default_role = "py:obj"  # single backticks in docstrings: a link, if it is a public name


def program(path: Path) -> str:
    """What a module does: its syntax tree without docstrings and comments."""
    tree = ast.parse(path.read_text())
    for node in ast.walk(tree):
        if isinstance(node, ast.Module | ast.ClassDef | ast.FunctionDef) and ast.get_docstring(node) is not None:
            node.body = node.body[1:]
    return ast.dump(tree)


# Tutorials run when the site is built, and again only after their code or the operators changed: what a run gave is
# kept under a digest of the operators and of the versions of the packages.
_inputs = [program(path) for path in sorted((ROOT / "ops").rglob("*.py"))]
_inputs += [path.read_text() for path in (ROOT / "requirements.txt", HERE / "tutorials" / "matplotlibrc")]
_digest = hashlib.sha256("".join(_inputs).encode()).hexdigest()[:12]
nb_execution_mode = "cache"
nb_execution_cache_path = str(HERE / "_build" / "executed" / _digest)
nb_execution_timeout = 600  # of one cell, on a machine that does other things, too; they take seconds
nb_execution_raise_on_error = True
nb_execution_show_tb = True
nb_merge_streams = True
nb_render_markdown_format = "myst"
# Of the kernels: nobody's settings but these, and no warning that they listen on a port of this machine.
os.environ["IPYTHONDIR"] = str(HERE / "_build" / "ipython")
_profile = HERE / "_build" / "ipython" / "profile_default"
_profile.mkdir(parents=True, exist_ok=True)
(_profile / "ipython_kernel_config.py").write_text("c = get_config()\nc.IPKernelApp.log_level = 40\n")
os.environ["PYTHONPATH"] = os.pathsep.join(LIBRARY)
os.environ.setdefault("JAX_PLATFORMS", "cpu")  # a GPU is not waited for, nor are pages made with one
os.environ["PYDEVD_DISABLE_FILE_VALIDATION"] = "1"  # or the debugger of the kernels complains of frozen modules

myst_enable_extensions = ["amsmath", "attrs_inline", "colon_fence", "deflist", "dollarmath"]
myst_heading_anchors = 3
myst_links_external_new_tab = False
highlight_language = "none"
copybutton_prompt_text = r">>> |\.\.\. |\$ "
copybutton_prompt_is_regexp = True

autodoc_typehints = "none"  # the docstrings say shapes and dtypes, which types do not
autodoc_preserve_defaults = True
autodoc_member_order = "bysource"
napoleon_google_docstring = True
napoleon_numpy_docstring = False
napoleon_attr_annotations = False
napoleon_use_ivar = True
# What comes before a colon under "Returns" says what it is of, and is no type.
napoleon_use_rtype = False
add_module_names = False

html_theme = "sphinx_book_theme"
html_title = "sparse-topk"
html_theme_options = {
    "show_toc_level": 2,
    "use_download_button": False,
    "use_fullscreen_button": False,
    "article_header_end": ["notebook.html", "article-header-buttons.html"],
    "home_page_in_toc": True,
    "navbar_persistent": [],  # a second field for searching, in a bar of its own
    "footer_content_items": ["copyright.html"],
}
html_static_path = ["_static"]
html_css_files = ["site.css"]
html_js_files = [("site.js", {"defer": "defer"})]
_notebooks = HERE / "_build" / "jupyter_execute" / "tutorials"  # where MyST-NB writes them, with their results
_gallery = HERE / "_build" / "gallery"
for _folder in (_notebooks, _gallery):
    _folder.mkdir(parents=True, exist_ok=True)
html_extra_path = ["llms.txt", str(_notebooks)]  # into the root of the site
html_context = {"default_mode": "auto"}  # light or dark, as the reader's system is
html_show_search_summary = False  # they are fetched, which browsers refuse to pages that are files
html_show_sphinx = False
html_last_updated_fmt = None

# MathJax in one file, out of a package: no page asks a network for anything.
_mathjax = Path(importlib.util.find_spec("sphinx-mathjax-offline").origin).parent / "static" / "mathjax"
html_static_path.append(str(_mathjax / "tex-svg-full.js"))
mathjax_path = "tex-svg-full.js"


def _on_include(app: Sphinx, path: Path, parent: str, source: list[str]) -> None:
    file, page = (HERE / path).resolve(), Path("docs", f"{app.env.docname}.md")
    text = re.sub(r"(?<=\]\()[^)\s]+(?=\))", lambda match: link_from(file.relative_to(ROOT), match[0], page), source[0])
    if file.name == "table.md":  # which begins at the third level
        text = re.sub(r"(?m)^###", "##", text)
    source[0] = text


def _on_reading(app: Sphinx, env: BuildEnvironment, pages: list[str]) -> None:
    pages.sort(key="tutorials/index".__eq__)  # the gallery comes last: its pictures are results of the tutorials


def _on_source(app: Sphinx, page: str, source: list[str]) -> None:
    for path in _notebooks.glob("*.ipynb") if page == "tutorials/index" else ():
        # MyST-NB writes a notebook without its results where they are in the cache.
        _, notebook = get_cache(nb_execution_cache_path).merge_match_into_notebook(nbformat.read(path, as_version=4))
        nbformat.write(notebook, path)
        results = [result.get("data", {}) for cell in notebook.cells for result in cell.get("outputs", ())]
        picture = next(data["image/png"] for data in results if "image/png" in data)
        (_gallery / f"{path.stem}.png").write_bytes(base64.b64decode(picture))


def setup(app: Sphinx) -> None:
    """Hooks of the events of a build."""
    app.connect("include-read", _on_include)
    app.connect("env-before-read-docs", _on_reading)
    app.connect("source-read", _on_source)
