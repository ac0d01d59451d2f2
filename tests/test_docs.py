"""Test that the site builds without warnings, documents public names, and shows code that runs."""

import re
import shlex
import subprocess
import sys
from html.parser import HTMLParser
from pathlib import Path
from urllib.parse import unquote, urlsplit

import numpy as np
import pytest
import yaml
from test_readme import _blocks, _run
from test_surface import PUBLIC

import jaxota as jo
from jaxota.cli import main as cli

ROOT = Path(__file__).parent.parent
PAGES = {path.stem: path.read_text(encoding="utf-8") for path in (ROOT / "docs").glob("*.md")}
ELSEWHERE = {"parts", "scaling", "throughput", "wise", "using"}  # test_readme runs what these show
GALLERY = re.findall(
    r"^```{picture} (\S+)\n:alt: (.+)\n((?:jaxota .+\n)+)```", PAGES["gallery"], re.M
)


@pytest.fixture(scope="module")
def site(tmp_path_factory):
    """Build the site without running notebooks, with blanks in place of pictures."""
    folder = tmp_path_factory.mktemp("docs")
    build = [sys.executable, "-m", "sphinx", "-q", "-W", "--keep-going", "-c", "docs"]
    fast = ["-D", "nb_execution_mode=off", "-D", "picture_run=0"]
    done = subprocess.run(
        [*build, *fast, ".", str(folder)], cwd=ROOT, capture_output=True, text=True, check=False
    )
    assert not done.returncode and not done.stderr, done.stderr
    return folder


class _Links(HTMLParser):
    """Links of a page, and the anchors that other pages can link to."""

    def __init__(self, text):
        super().__init__()
        self.links, self.anchors = [], set()
        self.feed(text)

    def handle_starttag(self, tag, attributes):
        found = dict(attributes)
        self.links += [found[name] for name in ("href", "src") if found.get(name)]
        self.anchors |= {found[name] for name in ("id", "name") if found.get(name)}


@pytest.mark.slow
def test_internal_links_are_not_broken(site):
    found = [path for path in site.rglob("*.html") if "_static" not in path.parts]
    pages = {path: _Links(path.read_text(encoding="utf-8")) for path in found}
    assert len(pages) > 20
    broken = []
    for path, page in pages.items():
        for link in page.links:
            parts = urlsplit(link)
            if parts.scheme or parts.netloc:
                continue
            target = (path.parent / unquote(parts.path)).resolve() if parts.path else path
            anchors = pages[target].anchors if target in pages else {""}
            place = unquote(parts.fragment)
            if not target.exists() or (place and target in pages and place not in anchors):
                broken.append((path.name, link))
    assert not broken


@pytest.mark.slow
def test_reference_documents_every_public_name(site):
    text = "".join(p.read_text(encoding="utf-8") for p in (site / "docs" / "api").glob("*.html"))
    named = set(re.findall(r'id="(jaxota\.[\w.]+)"', text))
    wanted = {name.replace("jo.", "jaxota.", 1) for name in PUBLIC if name.startswith("jo.")}
    wanted |= {f"jaxota.{name}" for name in PUBLIC if not name.startswith("jo.")}
    assert len(wanted) > 100 and wanted <= named, wanted - named


@pytest.mark.slow
def test_docstrings_become_lists_of_arguments_with_links(site):
    folder = site / "docs" / "api"
    pages = {path.stem: path.read_text(encoding="utf-8") for path in folder.glob("*.html")}
    arguments = set(re.findall(r"<li><p><strong>(\w+)</strong>", pages["running"]))
    assert {"key", "algorithm", "rounds", "trials", "plan", "initial"} <= arguments
    assert 'href="algorithms.html#jaxota.cobaaf"' in pages["running"]  # from `jo.cobaaf(...)`
    for name, page in pages.items():
        assert "`" not in re.sub(r"<script.*?</script>|<pre.*?</pre>", "", page, flags=re.S), name
        assert "<ol" not in page, name  # an entry such as "users: N." is no list


@pytest.mark.slow
@pytest.mark.parametrize("page", sorted(PAGES.keys() - ELSEWHERE))
def test_python_on_pages_runs(page, tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    names = {"__name__": "__main__"}
    for block in _blocks("python", PAGES[page]):
        _run(block, names, f"{page}.md")
        true = re.findall(r"^(.+?)  # True\b", block, re.MULTILINE)
        assert all(eval(expression, names) for expression in true)
    assert bool(names.keys() - {"__name__", "__builtins__"}) == (
        page in ("accelerators", "command", "exact", "index", "model", "methods", "theory", "trust")
    )
    for run in names.get("runs", {}).values():
        assert np.isfinite(run.model).all()


def test_contributing_lists_every_module(monkeypatch):
    monkeypatch.syspath_prepend(str(ROOT / "docs"))
    import modules

    page = (ROOT / "CONTRIBUTING.md").read_text(encoding="utf-8")
    (written,) = modules.LIST.findall(page)
    assert written == modules.modules(), "run: python docs/modules.py --write"
    rows = written.splitlines()[1:-1]
    assert all(len(row.split(maxsplit=1)) == 2 for row in rows), "a module without a docstring"


def test_gallery_commands_parse():
    assert len(GALLERY) == PAGES["gallery"].count("```{picture}") >= 8
    for picture, _, commands in GALLERY:
        for command in commands.splitlines():
            words = shlex.split(command)
            assert words[0] == "jaxota" and cli.parser().parse_args(words[1:])
        assert Path(picture).stem in commands


@pytest.mark.slow
def test_gallery_pictures_are_drawn_once(tmp_path, monkeypatch):
    monkeypatch.syspath_prepend(str(ROOT / "docs" / "extensions"))
    import gallery

    commands = ["jaxota run fig1 --trials 2 --rounds 3 --out out"]
    picture = gallery.made(commands, "out/fig1.png", tmp_path)
    written = picture.stat().st_mtime_ns
    assert gallery.made(commands, "out/fig1.png", tmp_path).stat().st_mtime_ns == written
    with pytest.raises(RuntimeError, match="nothing"):
        gallery.made(["jaxota run nothing"], "out/nothing.png", tmp_path)


def test_citation_names_this_version_and_the_paper():
    citation = yaml.safe_load((ROOT / "CITATION.cff").read_text(encoding="utf-8"))
    assert citation["cff-version"] == "1.2.0" and citation["version"] == jo.__version__
    assert {"message", "title", "authors"} <= citation.keys()
    (paper,) = citation["references"]
    assert "2303.17413" in paper["url"] and [a["family-names"] for a in paper["authors"]] == [
        "Gafni", "Cohen", "Eldar"]  # fmt: skip
