"""An experiment that does not fit together is one line, before any work."""

import dataclasses
from types import SimpleNamespace

import jax.numpy as jnp
import pytest

import jaxota as jo
from jaxota import figures
from jaxota._core import capacity
from jaxota.cli.run import Runner
from jaxota.study import executor as driver
from jaxota.study.compile import Programs

FIG1 = dataclasses.replace(figures.FIGURES["fig1"], rounds=2, trials=2)
QUIET = lambda *_, **__: None  # noqa: E731
SWEPT = jnp.array([0.1, 0.2])


@pytest.mark.parametrize(
    ("changed", "words"),
    [
        (
            {"algorithms": {"BAAF": jo.baaf(0.1, 1), "FedAvg": jo.fedavg(0.1, 1)}},
            "reference must be one of the algorithms, BAAF, FedAvg, got 'COTAF'",
        ),
        ({"algorithms": {}}, "algorithms must be a dict of at least one algorithm by its label"),
        (
            {"algorithms": {"COTAF": jo.cotaf(0.1, 1), "BAAF": jo.baaf(SWEPT, 1)}},
            "algorithms['BAAF'].local.step_size must be one value here, got an array",
        ),
        (
            {"channel": jo.Channel(snr_db=SWEPT)},
            "channel.snr_db must be one value here, got an array",
        ),
        (
            {"task": lambda key: jo.tasks.synthetic_regression(key, data_spread=SWEPT)},
            "task.data_spread must be one value here, got an array",
        ),
        ({"metric": "speed"}, "metric must be one of the task's scores, gap, loss, got 'speed'"),
        ({"metric": "accuracy"}, "metric must be one of the task's scores"),
        ({"trials": 0}, "trials must be a whole number ≥ 1, got 0"),
        ({"trials": 10**9}, "trials or rounds must be smaller: the results would take "),
        (
            {"trials": 10**11},
            "trials must be smaller: 100000000000 trials of 2 rounds would take 15",
        ),
        ({"rounds": 10**9}, "one trial of 1000000000 rounds would take "),
    ],
)
def test_bad_experiments_are_one_clear_line(changed, words, monkeypatch, tmp_path):
    monkeypatch.setattr(Programs, "_compile", None)
    monkeypatch.setattr(driver, "machine_memory", lambda: 2**34)
    monkeypatch.setattr(capacity, "machine_memory", lambda: 2**34)
    with pytest.raises(jo.InputError) as caught:
        Runner(tmp_path, QUIET)(dataclasses.replace(FIG1, **changed).study())
    assert words in str(caught.value) and "\n" not in str(caught.value)


def test_a_store_that_the_disk_has_no_room_for_is_not_begun(tmp_path, monkeypatch):
    monkeypatch.setattr(Programs, "_compile", None)
    many = dataclasses.replace(FIG1, trials=2 * 10**9, rounds=1000)
    monkeypatch.setattr(driver.shutil, "disk_usage", lambda _: SimpleNamespace(free=10**9))
    with pytest.raises(jo.InputError, match=r"the results would take .* has only 1 GB free"):
        Runner(tmp_path, QUIET, in_parts=True)(many.study())
    assert not list(tmp_path.iterdir())
