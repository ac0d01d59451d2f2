"""Whatever is wrong with a command line: exit code 2, one line, no warning and no file."""

import contextlib
import io
import os
import string
import tempfile
import warnings

import hypothesis
import pytest
from hypothesis import strategies as st

from jaxota.cli import main as cli
from jaxota.cli import typed as parsing
from jaxota.cli.main import FORMATS
from jaxota.figures import FIGURES
from jaxota.study import executor as driver
from jaxota.tasks import images

pytestmark = pytest.mark.slow  # many, or processes

# Words that are no number, no name and no path: of everything a keyboard or a script may send.
WORDS = st.text(string.printable + "ηθ±∞🙂\x00", max_size=12)
ODD = ["", " ", "None", "nan", "-nan", "1e", "0x10", "1_", "--", "1,2", "1:2:0", "[1]", "{}", "\n"]
HUGE = [str(10**k) for k in (11, 19, 30, 400)]


def _number(word, kind):
    try:
        return kind(word)
    except (ValueError, OverflowError):
        return None


def whole(least, most=10**9):
    """Words that are no whole number from `least` to `most`."""
    bad = st.sampled_from([*ODD, *HUGE, "-1", "1.5", "1e3", "inf", str(least - 1)]) | WORDS
    return bad.filter(lambda w: (n := _number(w, int)) is None or not least <= n <= most)


def real(allowed):
    """Words that are no number that is allowed."""
    bad = st.sampled_from([*ODD, "-inf", "-1", "-1e9"]) | WORDS
    return bad.filter(lambda w: (x := _number(w, float)) is None or not allowed(x))


def none_of(*good):
    bad = st.sampled_from([*ODD, *(w.upper() for w in good), *(w + "x" for w in good)]) | WORDS
    return bad.filter(lambda w: w not in good)


def not_bytes(word):
    return not (word.strip()[:1].isdigit() or word.strip()[:1] == ".")


SIZES = (st.sampled_from([*ODD, "0", "-1", "-1G", "G", "1X", "1GG", "nan", "inf"]) | WORDS).filter(
    not_bytes
)
NOWHERE = st.sampled_from(["/dev/null/x", "/proc/none/x", "\x00"])
COMMON = {
    "--trials": whole(1),
    "--rounds": whole(1),
    "--seed": whole(0, 2**32 - 1),
    "--snr-db": real(lambda x: x > -300),
    "--snr-per": none_of("vector", "symbol"),
    "--memory": SIZES,
    "--out": NOWHERE,
    "--shard": st.sampled_from([*ODD, "1/1", "2/2", "-1/2", "0/0", "a/b", "1/2/3", "1.0/2"]),
}
IMAGES = {
    "--dataset": none_of(*images.DATASETS),
    "--data-dir": NOWHERE,
    "--init-scale": real(lambda x: 0 <= x < float("inf")),
}
SWEEP = {
    "--set": st.sampled_from(
        [*ODD, "snr_db", "snr_db=", "=1", "snr_db=a", "snr_db=1:0:1", "snr_db=0:1:0", "nobody=1",
         "snr_db=1:2:3:4", "snr_db=nan", "step_size=-1", "users=0", "users=1.5", "steps=inf",
         "fading=rayleigh(", "fading=eval(1)", "task.key=-1", "snr_db=0:1e9:1",
         "snr_db=1,1", "participants=99"]
    ) | WORDS,
    "--algorithms": none_of("COTAF", "BAAF", "COBAAF"),
    "--keep": none_of("trials", "mean"),
    "--max-bytes": SIZES,
    "--max-programs": whole(1, float("inf")),
}  # fmt: skip
PICTURES = {
    "--format": none_of("png", "svg", "pdf").filter(lambda w: w.strip() not in FORMATS),
    "--style": none_of("screen", "paper"),
}
CASES = {
    **{("run", "fig1", option): bad for option, bad in COMMON.items()},
    **{("run", "fig4", option): bad for option, bad in IMAGES.items()},
    **{("sweep", "fig1", option): bad for option, bad in (COMMON | SWEEP).items()},
    **{("run", "fig1", option): bad for option, bad in PICTURES.items()},
    **{("show", "there", option): bad for option, bad in PICTURES.items()},
    ("run",): none_of(*FIGURES),
    ("sweep",): none_of(*FIGURES),
    ("compile",): none_of(*FIGURES),
    ("compile", "fig1", "--for"): none_of("here", "v5e", "v6e", "h100", "t4"),
    ("show",): NOWHERE | WORDS,
    ("report",): NOWHERE | WORDS,
    (): none_of("run", "sweep", "show", "list", "bench", "report", "compile"),
}


def answered(argv, folder):
    """Exit code and both streams of a command that must not write to the folder."""
    printed, errors = io.StringIO(), io.StringIO()
    with (
        contextlib.redirect_stdout(printed),
        contextlib.redirect_stderr(errors),
        contextlib.chdir(folder),
        warnings.catch_warnings(),
    ):
        warnings.simplefilter("error")
        code = cli.main(argv)
    return code, printed.getvalue(), errors.getvalue()


def check(case, bad):
    *words, last = *case, bad
    if words and words[-1].startswith("--"):
        last = f"{words.pop()}={bad}"
    elif last.startswith("-"):
        last = f"x{last}"  # no option, such as --help
    with tempfile.TemporaryDirectory() as folder:
        code, printed, errors = answered([*words, last], folder)
        assert os.listdir(folder) == []
    assert (code, printed) == (2, ""), errors
    assert errors.startswith("jaxota: ") and errors.count("\n") == 1


@pytest.mark.parametrize("case", CASES, ids=lambda case: " ".join(case) or "jaxota")
def test_bad_words_are_one_line(case, monkeypatch):
    monkeypatch.setenv("JAXOTA_CACHE", "off")
    monkeypatch.setattr(driver, "drive", lambda *_, **__: pytest.fail("it was run"))
    settings = hypothesis.settings(
        derandomize=True,
        deadline=None,
        max_examples=60,
        database=None,
        report_multiple_bugs=False,
        suppress_health_check=list(hypothesis.HealthCheck),
    )

    @settings
    @hypothesis.given(CASES[case])
    def fuzz(bad):
        check(case, bad)

    fuzz()


def test_the_fuzz_finds_a_hole(monkeypatch):
    """A check less, and words reach what is behind it."""
    monkeypatch.setattr(parsing, "parse_shard", lambda word: tuple(map(int, word.split("/"))))
    with pytest.raises(BaseException, match=r"it was run|invalid literal|must be"):
        test_bad_words_are_one_line(("run", "fig1", "--shard"), monkeypatch)
