"""The list of methods: each line makes what it names, and the page of methods has each name."""

import re
from pathlib import Path

import optax
import pytest

import jaxota as jo
from jaxota._core.arguments import experiment
from jaxota.cli.methods import METHODS

PAGE = (Path(__file__).parent.parent / "docs" / "methods.md").read_text(encoding="utf-8")


@pytest.mark.parametrize("name", METHODS)
def test_a_line_makes_its_method(name):
    made = eval(METHODS[name], {"jo": jo, "optax": optax})
    task = jo.tasks.synthetic_regression(0, users=5, samples=10, dim=600)
    algorithm = made if isinstance(made, jo.Algorithm) else jo.cotaf(1e-2, 10)
    channel = made if isinstance(made, jo.Channel) else jo.Channel()
    assert made in (algorithm, channel)
    experiment(0, algorithm, channel, task, 2, 2)  # refuses what does not fit, and runs nothing


@pytest.mark.parametrize("name", METHODS)
def test_the_page_of_methods_names_them_all(name):
    assert re.search(rf"\b{re.escape(name)}(?!\w)", PAGE, re.I)


def test_the_list_names_them_all(capsys):
    from jaxota.cli.main import main

    assert main(["list"]) == 0
    printed = capsys.readouterr().out
    for name, line in METHODS.items():
        assert re.search(rf"^  {re.escape(name)} +{re.escape(line)}$", printed, re.M)
