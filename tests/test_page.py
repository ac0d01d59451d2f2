"""The page of a folder: whole, escaped, without network, and alive in a browser."""

import base64
import dataclasses
import datetime
import json
import re
import shutil
import subprocess
from pathlib import Path

import numpy as np
import pandas
import pytest
import xarray
from test_report import TOLD

import jaxota as jo
from jaxota import reports
from jaxota.cli import main as cli
from jaxota.cli import page, run

EVIL = "</script><script>alert(1)</script><b>&\"'"
ROW = "A,0,1,gap,1,1,1,1"
HEADER = ["algorithm", "snr_db", "round", "metric", "mean", "ci_low", "ci_high", "power_ratio"]


def _rows(algorithms=("COTAF", "SCAFFOLD (noise-free)", EVIL), snrs=(0, 10), rounds=6):
    """Tidy rows, as a sweep writes them; one band reaches below zero, one mean is not there."""
    rows = []
    for a, name in enumerate(algorithms):
        for snr in snrs:
            for metric in ("loss", "gap"):
                for r in range(1, rounds + 1):
                    mean = (a + 1) * 10.0 / r + snr
                    high = 2 * mean - snr
                    low = -1.0 if (a, r) == (1, 3) else 0.5 * mean
                    mean = np.nan if (a, r) == (0, 2) else mean
                    rows.append([name, snr, r, metric, mean, low, high, 1.0])
            rows.append([name, snr, rounds, "diverged", 1, 1, 1, 1.0])
    return pandas.DataFrame(rows, columns=HEADER)


# A run with curves whose words are not what one hopes for, and a run without curves.
CURVES = dataclasses.replace(
    TOLD,
    name="curves",
    caption=f"curves: {EVIL}",
    csv=_rows(),
    dataset=xarray.Dataset(
        {"x": ("n", [1.0])},
        attrs={
            "metric": "gap",
            "description": json.dumps({"rounds": 6, "channel": {"is": EVIL}}),
        },
    ),
)


@pytest.fixture
def folder(tmp_path):
    reports.write(CURVES, tmp_path, command="jaxota run curves --trials 3", seed=3)
    reports.write(TOLD, tmp_path)
    return tmp_path


def test_a_folder_becomes_one_page(folder, capsys):
    xarray.Dataset({"x": 1}).to_netcdf(folder / "other.nc", engine="h5netcdf")
    assert cli.main(["report", str(folder)]) == 0
    printed = capsys.readouterr().out
    assert f"wrote {folder / 'report.html'}" in printed
    assert f"left out {folder / 'other.nc'}" in printed
    words = (folder / "report.html").read_text(encoding="utf-8")
    for each in (
        "jaxota run curves --trials 3", jo.__version__, "1 ± 0.1", "two &amp; three",
        "width=device-width", "told: a &lt;caption&gt;", "data:image/png;base64,",
        "Numbers: 78 rows, the first 20", "<td>rounds</td><td>6</td>",
    ):  # fmt: skip
        assert each in words, each
    assert words.count('class="chart"') == 1 and words.count("<img") == 2
    assert f"Report of {datetime.date.today()}" in words and "Definitions" in words
    (held,) = re.findall(r'download="curves.csv" href="data:text/csv;base64,([^"]+)"', words)
    assert len(base64.b64decode(held).decode().splitlines()) == 1 + len(CURVES.csv)
    assert len(words) < 2_000_000


def test_what_files_say_is_not_run(folder):
    words = page.write(folder)[0].read_text(encoding="utf-8")
    assert "<script>alert" not in words and "<b>&" not in words
    assert words.count("</script>") == 2  # the curves' numbers and ours
    assert 'http-equiv="Content-Security-Policy" content="default-src \'none\'' in words
    addresses = re.findall(r"https?://[^\s\"'<]+", words)
    assert set(addresses) == {"http://www.w3.org/2000/svg"}  # a name, not a place


def test_the_tables_of_a_file_are_those_of_the_screen(folder):
    (curves, told), others = page.read(folder)
    assert others == [] and told.table == [["algorithm", "gap"], ["COTAF", "1 ± 0.1"]]
    assert told.remarks == ["one", "two & three"]
    assert curves.dataset.attrs["seed"] == 3 and curves.dataset.attrs["command"].endswith("s 3")
    expected = _rows().assign(snr_db=_rows().snr_db.astype(str))  # labels are words
    pandas.testing.assert_frame_equal(curves.csv, expected, check_dtype=False, rtol=1e-8)


def test_curves_hold_the_numbers_of_the_rows():
    made = page.curves(_rows(), "gap")
    assert [m["name"] for m in made["metrics"]] == ["gap", "loss", "power ratio"]
    assert [m["log"] for m in made["metrics"]] == [True, True, True]
    assert page.curves(_rows(), "loss")["metrics"][0]["name"] == "loss"
    assert [d["name"] for d in made["dims"]] == ["algorithm", "snr_db"] and made["against"] == 1
    assert made["dims"][1]["numeric"] and not made["dims"][0]["numeric"]
    mean = np.array(made["metrics"][0]["mean"], float).reshape(3, 2, 6)
    assert np.isnan(mean[0, 0, 1]) and mean[1, 1, 4] == pytest.approx(20 / 5 + 10)
    low = np.array(made["metrics"][0]["low"]).reshape(3, 2, 6)
    assert low[1, 0, 2] == -1.0
    assert made["looks"][1]["colour"] == "currentColor"  # SCAFFOLD is black, or white in the dark
    json.dumps(made, allow_nan=False)
    assert page.curves(TOLD.csv, "gap") is None


def test_a_large_sweep_keeps_fewer_rounds(monkeypatch):
    monkeypatch.setattr(page, "MOST", 40)
    made = page.curves(_rows(rounds=50), "gap")
    assert made["rounds"] == [25, 50] and made["note"] == "2 of 50 rounds."
    assert sum(len(m["mean"]) for m in made["metrics"]) <= 40
    monkeypatch.setattr(page, "MOST", 5)
    assert page.curves(_rows(), "gap") is None  # the table and the CSV have them


def test_parts_are_said_as_one_writes_them():
    still = {"function": "optax._src.base.identity.<locals>.update_fn", "code": "0"}
    part = {"is": "SGD", "step_size": 0.01, "transform": [still], "gains": [], "batch": None}
    assert page.in_words(part) == "SGD(step_size=0.01, batch=None)"
    assert page.in_words({"is": "Algorithm", "local": part}).startswith("Algorithm(local=SGD(step")
    assert (
        page.in_words({"key": [1, 2]}) == "1, 2"
        and page.in_words({"is": "OverTheAir"}) == "OverTheAir"
    )


def test_the_command_makes_it_again():
    def command(*words):
        return run.command_line(cli.parser().parse_args(words))

    made = command("run", "fig5", "--snr-db", "3", "--data-dir", "/me", "--seed", "0")
    assert made == "jaxota run fig5 --snr-db 3.0"
    words = ["--set", "snr_db=0:2:1", "--trials", "2", "--algorithms", "A,B c", "--keep", "mean"]
    made = command("sweep", "/me/mine.py:S", *words, "--out", "/me/there", "--resume")
    assert made == (
        "jaxota sweep mine.py:S --set snr_db=0:2:1 --trials 2 --algorithms 'A,B c' --keep mean"
    )


@pytest.mark.parametrize(
    ("spoil", "words"),
    [
        (lambda folder: shutil.rmtree(folder), "must be a folder with results"),
        (lambda folder: [path.unlink() for path in folder.iterdir()], "holds no results"),
        (lambda folder: (folder / "curves.csv").unlink(), "curves.csv cannot be read"),
        (lambda folder: (folder / "told.nc").write_bytes(b"no"), "told.nc cannot be read"),
        (lambda folder: (folder / "curves.csv").write_text("algorithm,round\n"), ""),
        (
            lambda folder: (folder / "curves.csv").write_text(",".join(HEADER) + "\nA,1\n"),
            "curves.csv cannot be read: could not convert",
        ),
        (
            lambda folder: (folder / "curves.csv").write_text(
                "\n".join([",".join(HEADER), *2 * [ROW]])
            ),
            "curves.csv cannot be read: a row is there twice",
        ),
        (lambda folder: (folder / "curves.csv").write_bytes(b"\xff\xfe\n"), "cannot be read"),
        (lambda folder: (folder / "curves.csv").write_text(""), "cannot be read"),
        (lambda folder: (folder / "study.json").write_text("{"), "study.json is damaged"),
    ],
)
def test_what_cannot_be_told_is_one_line(spoil, words, folder, capsys):
    spoil(folder)
    code = cli.main(["report", str(folder)])
    printed, errors = capsys.readouterr()
    assert code == (2 if words else 0) and words in errors
    if words:
        assert printed == "" and errors.startswith("jaxota: ") and errors.count("\n") == 1
        assert not (folder / "report.html").exists()


FLAGS = (
    "--headless", "--no-sandbox", "--disable-gpu", "--disable-quic", "--no-first-run",
    "--disable-background-networking", "--disable-component-update", "--disable-sync",
    "--enable-logging=stderr", "--virtual-time-budget=5000", "--dump-dom",
)  # fmt: skip
BROWSERS = ("chromium", "chromium-browser", "google-chrome", "chrome")


def _opened(path, profile, width):
    """The page as a browser has it, and what its console says."""
    browser = next(filter(None, map(shutil.which, BROWSERS)), None)
    if browser is None:
        pytest.skip(f"no browser: none of {', '.join(BROWSERS)} is installed")
    options = [*FLAGS, f"--user-data-dir={profile}", f"--window-size={width},900"]
    done = subprocess.run(
        [browser, *options, path.as_uri()], capture_output=True, text=True, timeout=120, check=True
    )
    return done.stdout, [line for line in done.stderr.splitlines() if "CONSOLE" in line]


def _lines(shown):
    return len(re.findall(r'<path[^>]* class="line"', shown))


def _pressed(shown):
    return re.findall(r'<button[^>]* aria-pressed="(\w+)"', shown)


@pytest.mark.slow
@pytest.mark.parametrize("width", [1200, 500])
def test_a_browser_draws_the_curves(width, folder, tmp_path_factory):
    shown, console = _opened(page.write(folder)[0], tmp_path_factory.mktemp("profile"), width)
    assert console == []
    assert _lines(shown) == 3 and len(re.findall(r'<path[^>]* class="band"', shown)) == 3
    assert "final optimality gap F(θ̂) − F(θ*)" in shown and "SNR (dB)" in shown
    assert _pressed(shown) == ["true"] * 3


TOUCH = """
const chart = document.querySelector(".chart"), stage = chart.querySelector(".stage");
const against = chart.querySelector("select[aria-label=against]");
against.value = "2";  // rounds
against.dispatchEvent(new Event("change"));
chart.querySelectorAll(".legend button")[1].click();
const box = stage.querySelector("svg").getBoundingClientRect();
stage.querySelector("svg").dispatchEvent(
  new PointerEvent("pointermove", { clientX: box.right - 15, clientY: box.top + 50 }));
document.title = stage.querySelector(".tip").textContent;
"""


@pytest.mark.slow
def test_curves_answer_to_hands(folder, tmp_path_factory):
    """A select changes the axis, the legend hides a curve, the pointer shows values."""
    words = page.write(folder)[0].read_text(encoding="utf-8")
    words = re.sub(r"<meta http-equiv[^>]*>", "", words)  # which would not run ours
    path = folder / "touched.html"
    path.write_text(words.replace("</body>", f"<script>{TOUCH}</script></body>"), encoding="utf-8")
    shown, console = _opened(path, tmp_path_factory.mktemp("profile"), 1000)
    assert console == []
    assert _lines(shown) == 2 and _pressed(shown) == ["true", "false", "true"]
    title = re.search(r"<title>(.*?)</title>", shown, re.DOTALL)[1]
    assert title.startswith("round 6COTAF: 1.667 [0.8333, 3.333]") and "SCAFFOLD" not in title
    assert "communication round r" in shown


@pytest.mark.slow
def test_a_browser_refuses_what_is_not_ours(folder, tmp_path_factory):
    """So that a console without errors says something: a script more is an error there."""
    path = page.write(folder)[0]
    words = path.read_text(encoding="utf-8")
    path.write_text(words.replace("</body>", "<script>document.title=1</script></body>"))
    _, console = _opened(path, tmp_path_factory.mktemp("profile"), 800)
    assert len(console) == 1 and "Content Security Policy" in console[0]


@pytest.mark.slow
def test_a_store_becomes_one_page(tmp_path, monkeypatch, capsys):
    monkeypatch.setenv("JAXOTA_CACHE", "off")
    study = Path(__file__).parent / "small_study.py"
    command = ["sweep", f"{study}:small", "--trials", "3", "--out", str(tmp_path / "s")]
    assert cli.main(command) == 0 and cli.main(["report", str(tmp_path / "s")]) == 0
    words = (tmp_path / "s" / "report.html").read_text(encoding="utf-8")
    assert "jaxota sweep small_study.py:small --trials 3" in words and str(tmp_path) not in words
    assert 'class="chart"' in words and "difference to COTAF" in words
    assert "SGD(step_size=0.05, steps=2, batch=3" in words
    ((section,), _) = page.read(tmp_path / "s")
    curves = page.curves(section.csv, "gap")
    assert curves["dims"][1]["values"] == ["0.0", "10.0"]
    assert curves["rounds"] == [1, 2, 3, 4] and curves["note"] == ""
    assert "too many settings" not in words
    monkeypatch.setattr(page, "MOST", 1)
    words = page.write(tmp_path / "s")[0].read_text(encoding="utf-8")
    assert "too many settings" in words and 'class="chart"' not in words
    assert cli.main(["show", str(tmp_path / "s")]) == 0
    words = page.write(tmp_path / "s")[0].read_text(encoding="utf-8")
    assert '<img src="data:image/png;base64,' in words
