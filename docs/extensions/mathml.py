"""Formulas as MathML, which browsers draw themselves: pages need no network."""

from docutils import nodes
from docutils.utils.math import latex2mathml


def inline(writer, node) -> None:
    writer.body.append(latex2mathml.tex2mathml(node.astext()))
    raise nodes.SkipNode


def block(writer, node) -> None:
    writer.body.append(f'<div class="formula">{latex2mathml.tex2mathml(node.astext(), True)}</div>')
    raise nodes.SkipNode


def setup(app):
    app.add_html_math_renderer(
        "mathml", inline_renderers=(inline, None), block_renderers=(block, None)
    )
    return {"parallel_read_safe": True}
