"""Sphinx's settings of the documentation site, which `make docs` builds (build_tools/docs.py)."""

import re
from pathlib import Path

from sphinx.pycode import ModuleAnalyzer

import thunderkittens

PACKAGE = Path(thunderkittens.__file__).parent
PUBLIC = {name for name in thunderkittens.__all__ if callable(getattr(thunderkittens, name))}

project = "thunderkittens"
version = release = thunderkittens.__version__
html_title = f"thunderkittens {version}"
copyright = "the thunderkittens contributors, MIT licence"

extensions = [
    "myst_parser",
    "sphinx.ext.autodoc",
    "sphinx.ext.napoleon",
    "sphinx.ext.viewcode",
]
myst_heading_anchors = 4
suppress_warnings = ["config.cache"]
nitpick_ignore_regex = [
    (r"py:.*", r"(?!thunderkittens\b).*"),  # torch's and Python's names
    (r"py:class", rf"thunderkittens\.ops\.\w+\.({'|'.join(sorted(PUBLIC))})\b.*"),  # on their pages
]
smartquotes_action = "D"  # dashes; "none" keeps the quotes that are typed

autodoc_member_order = "bysource"
autodoc_typehints = "signature"
python_maximum_signature_line_length = 80
python_use_unqualified_type_names = True
add_module_names = False
toc_object_entries_show_parents = "hide"


def sections() -> set[str]:
    """The titles of sections that docstrings of the package have beside Google's own."""
    sources = [path.read_text() for path in PACKAGE.rglob("*.py")]
    found = {
        title
        for text in sources
        for title in re.findall(r"^ +([A-Z][a-z]+(?: [a-z]+)*):\n {8}", text, re.M)
    }
    return found - {"Args", "Attributes", "Example", "Raises", "Returns", "Yields"}


napoleon_custom_sections = sorted(sections())
napoleon_use_ivar = True

html_theme = "furo"
html_static_path = ["static"]
html_css_files = ["site.css"]
html_show_sphinx = False
html_copy_source = False
html_show_sourcelink = False
pygments_style = "tango"
pygments_dark_style = "monokai"


def _marked(text: str) -> str:
    """A piece of prose as reStructuredText: its signs are no markup."""
    return re.sub(r"([\\*|]|(?<=\w)_(?!\w))", r"\\\1", text)


def _code(text: str) -> str:
    """What stands between backticks: a link, if it is a public name."""
    name = text.removeprefix("thunderkittens.")
    return f":py:obj:`~thunderkittens.{name}`" if name in PUBLIC else f"``{text}``"


def to_restructured(app, what, name, obj, options, lines):
    """Docstrings are Markdown's dialect of code in backticks; before napoleon reads them."""
    in_example = False
    blocks = _as_blocks(lines)
    for index, line in enumerate(lines):
        in_example = bool(line.strip()) and (in_example or line.lstrip().startswith(">>>"))
        if not in_example and index not in blocks:
            parts = line.split("`")
            parts[::2] = [_marked(part) for part in parts[::2]]
            parts[1::2] = [_code(part) for part in parts[1::2]]
            lines[index] = "".join(parts)
    for index in range(len(lines) - 1, 0, -1):
        if lines[index - 1].strip() == "Returns:":
            lines[index : index + 1] = _broken_before_a_colon(lines[index])


def _as_blocks(lines):
    """Makes blocks of code of examples that are no doctests; returns their lines' numbers."""
    starts = [index for index, line in enumerate(lines) if line.strip() == "Example:"]
    for start in starts[:1]:
        margin = len(lines[start]) - len(lines[start].lstrip()) + 4
        end = start + 1
        while end < len(lines) and (not lines[end].strip() or lines[end].startswith(" " * margin)):
            end += 1
        code = lines[start + 1 : end]
        if code and not code[0].lstrip().startswith(">>>"):
            block = [f"{' ' * margin}.. code-block:: python", "", *(f"    {line}" for line in code)]
            lines[start + 1 : end] = block
            return range(start + 1, start + 1 + len(block))
    return range(0)


def _broken_before_a_colon(line):
    """In two, if there is a colon, which napoleon would take for the end of a type."""
    head, colon, rest = line.partition(": ")
    start, _, word = head.rpartition(" ")
    if not colon or not start.strip():
        return [line]
    margin = " " * (len(line) - len(line.lstrip()))
    return [start, f"{margin}{word}{colon}{rest}"]


def without_private_arguments(app, what, name, obj, options, signature, returns):
    """A signature as a caller sees it: without `**_names`, which take nothing."""
    return re.sub(r",? ?\*\*_\w+(: [~.\w]+)?", "", signature or "") or None, returns


def setup(app):
    """Registers the above; a function has one signature, that of all its overloads."""
    for module in {getattr(thunderkittens, name).__module__ for name in PUBLIC}:
        analyzer = ModuleAnalyzer.for_module(module)
        analyzer.analyze()
        analyzer.overloads.clear()
    app.connect("autodoc-process-docstring", to_restructured, priority=400)
    app.connect("autodoc-process-signature", without_private_arguments)
