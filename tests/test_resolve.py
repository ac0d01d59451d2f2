"""A study equals a simulation of each setting, however settings share programs and plans."""

import itertools

import jax
import numpy as np
import pytest

import jaxota as jo
from jaxota.stages.fading import Rayleigh, Rician
from jaxota.study import compile as compile_
from jaxota.study.executor import StudyJob
from jaxota.study.resolve import resolve
from jaxota.sweeping import history

pytestmark = pytest.mark.slow  # most of it compiles

KEY = jax.random.key(0)
TASK = jo.tasks.synthetic_regression(jax.random.key(1), 3, 6, 2)
COBAAF, CONSTANT = jo.cobaaf(1e-2, 2, 2), jo.noisy_fedavg(1e-2, 2, 2, precode=jo.Constant(1.0))
STUDY = jo.Study(
    {"COBAAF": COBAAF, "constant": CONSTANT},
    jo.Channel(),
    TASK,
    3,
    3,
    key=KEY,
    calibration_trials=4,
)
PLAIN = STUDY.replace(algorithms={"constant": CONSTANT})


def assert_alike(history, one):
    """Models within 1e-5·max|θ|, scores within 1e-3, and all that there is."""
    for name in ("model", "average"):
        expected = np.asarray(getattr(one, name))
        tolerance = 1e-5 * np.abs(expected).max()
        np.testing.assert_allclose(getattr(history, name), expected, rtol=0, atol=tolerance)
    for name in one.scores:
        np.testing.assert_allclose(history.scores[name], one.scores[name], rtol=1e-3)
    for name in ("power", "error", "deviation", "participants"):
        np.testing.assert_allclose(getattr(history, name), getattr(one, name), rtol=1e-3, atol=1e-9)
    assert bool(np.size(history.control_power)) == bool(np.size(one.control_power))


@pytest.mark.slow
def test_a_study_equals_a_simulation_of_each_setting():
    """Numbers and structures, of channel, task and algorithms, in one product."""
    values = {
        "snr_db": [0.0, 20.0],
        "fading": {"no": None, "weak": jo.rayleigh(0.3)},
        "data_spread": [0.1, 0.4],
        "users": [3, 4],
        "steps": [1, 2],
        "gain": [0.5, 1.0],
    }
    data = STUDY.replace(over=jo.grid(**values)).run()
    assert data.gap.dims == ("algorithm", *values, "trial", "evaluation")
    labels = {k: list(v) for k, v in values.items()}
    assert {k: data[k].values.tolist() for k in values} == labels
    assert np.isfinite(data.gap).all()
    # Of each structure one algorithm, in turn, in a setting of its own.
    for number, (law, users, steps) in enumerate(itertools.product((0, 1), (3, 4), (1, 2))):
        snr, spread, gain = ((number >> bit) % 2 for bit in (0, 1, 2))
        place = {
            "snr_db": values["snr_db"][snr], "fading": labels["fading"][law], "users": users,
            "data_spread": values["data_spread"][spread], "steps": steps,
            "gain": values["gain"][gain],
        }  # fmt: skip
        name = ("COBAAF", "constant")[(law + users + steps) % 2]
        algorithm = STUDY.algorithms[name]
        algorithm = algorithm.replace(local=algorithm.local.replace(steps=steps))
        if name == "constant":
            algorithm = algorithm.replace(precode=jo.Constant(place["gain"]))
        channel = jo.Channel(snr_db=place["snr_db"])
        if law:
            channel = channel.replace(fading=jo.rayleigh(0.3))
        task = TASK.replace(users=users, data_spread=place["data_spread"])
        one = jo.simulate(KEY, algorithm, channel, task, 3, 3, calibration_trials=4)
        assert_alike(history(data, algorithm=name, **place), one)


def test_fields_in_step_and_whole_parts():
    over = jo.grid(
        {"snr_db": [0.0, 20.0], "power": [1.0, 3.0]},
        precode={"one": jo.Constant(1.0), "on": jo.Online()},
    )
    data = PLAIN.replace(over=over).run()
    assert data.gap.dims == ("algorithm", "setting", "precode", "trial", "evaluation")
    np.testing.assert_array_equal(data.snr_db, [0.0, 20.0])
    np.testing.assert_array_equal(data["channel.power"], [1.0, 3.0])  # `power` is a result
    assert data.power.dims == ("algorithm", "setting", "precode", "trial", "round")
    channel = jo.Channel(snr_db=20.0, power=3.0)
    one = jo.simulate(KEY, CONSTANT.replace(precode=jo.Online()), channel, TASK, 3, 3)
    assert_alike(history(data, algorithm="constant", setting=1, precode="on"), one)


def test_a_part_is_set_before_what_is_inside_it():
    """In whatever order they are given: neither undoes the other."""
    inside = {"csi_error": [0.0, 0.1]}
    laws = {"fading": {"none": jo.rayleigh(), "line of sight": jo.rician(3.0)}}
    study = PLAIN.replace(channel=jo.Channel(fading=jo.rayleigh()))
    for over in (jo.grid(**inside, **laws), jo.grid(**laws, **inside)):
        groups = resolve(study.replace(over=over)).groups
        for place, law in (((0,), Rayleigh), ((1,), Rician)):
            fading = groups[place].parts["channel"].fading
            assert isinstance(fading.law, law)
            np.testing.assert_array_equal(fading.csi_error, np.float32([0.0, 0.1]))
    steps, rules = {"steps": [1, 2]}, {"local": {"slow": jo.SGD(0.1, 9), "fast": jo.SGD(0.5, 9)}}
    for over, place in ((jo.grid(**steps, **rules), (1, 0)), (jo.grid(**rules, **steps), (0, 1))):
        local = resolve(PLAIN.replace(over=over)).groups[place].parts["algorithms"][0].local
        assert (local.steps, float(local.step_size)) == pytest.approx((2, 0.1))


def test_tasks_of_different_dimensions_are_filled_up():
    data = PLAIN.replace(over=jo.grid(dim=[2, 3])).run()
    assert data.sizes["parameter"] == 3
    assert np.isnan(data.model.sel(dim=2).isel(parameter=2)).all()
    assert np.isfinite(data.model.sel(dim=3)).all() and np.isfinite(data.gap).all()


def test_scores_and_rounds_are_labelled():
    data = PLAIN.replace(rounds=4, every=2, trials=2).run()
    assert data.gap.dims == ("algorithm", "trial", "evaluation")
    np.testing.assert_array_equal(data.evaluation, [2, 4])
    np.testing.assert_array_equal(data["round"], [1, 2, 3, 4])
    assert data.average_gap.dims == ("algorithm", "trial")
    assert "control_power" not in data  # nobody has controls
    assert data.attrs["scores"] == ["gap", "loss"] and data.attrs["metric"] == "gap"
    average = np.asarray(data.average.isel(algorithm=0))
    problem = TASK.problem(0)
    scored = [float(problem.score(jax.numpy.asarray(model))["gap"]) for model in average]
    np.testing.assert_allclose(data.average_gap.isel(algorithm=0), scored, rtol=1e-3, atol=1e-6)


@pytest.fixture
def counted(monkeypatch):
    """How often programs calibrate, and are traced."""
    places = {"calibrate": compile_.Programs, "run_all": compile_, "observe": compile_}
    seen = dict.fromkeys(places, 0)
    for name, place in places.items():

        def count(*args, _name=name, _original=getattr(place, name), **options):
            seen[_name] += 1
            return _original(*args, **options)

        monkeypatch.setattr(place, name, count)
    return seen


CALIBRATED = STUDY.replace(
    algorithms={"BAAF": jo.baaf(1e-2, 2, 2), "COTAF": jo.cotaf(1e-2, 2, 2), "COBAAF": COBAAF},
    trials=2,
)


@pytest.mark.parametrize(
    ("over", "times"),
    [
        (jo.grid(snr_db=[-10, -5, 0, 5, 10, 15, 20]), 1),
        (jo.grid(snr_db=[0, 5], precode={"on": jo.Online(), "off": jo.Offline()}), 1),
        (jo.grid(snr_db=[0, 5], data_spread=[0.1, 0.2, 0.3]), 3),
        (jo.grid(snr_db=[0, 5], users=[2, 3]), 2),
    ],
)
def test_settings_share_calibrations(over, times, counted):
    """One for all that differ in the channel, the precoder or the estimator alone."""
    job = StudyJob(CALIBRATED.replace(over=over))
    assert job.calibrations == times
    layout = job.layout()
    for number in range(layout.count):
        job.compute(layout, number)
    assert counted["calibrate"] == 2 * times  # of plain SGD, and of COBAAF's rule


def test_progress_reports_calibration_and_running():
    heard = []
    CALIBRATED.run(report=lambda *told, steps: heard.append(told))
    heard = [told for told in heard if told[0] != "compiling"]  # where the compiler is awaited
    assert [told for told, _ in itertools.groupby(heard)] == [
        ("running", 0, 1), ("calibrating", 0, 4), ("running", 0, 1), ("running", 1, 1)
    ]  # fmt: skip


def test_algorithms_alike_without_noise_share_a_plan(counted):
    CALIBRATED.run()
    assert counted["calibrate"] == 2  # BAAF and COTAF both run plain SGD
    PLAIN.run()
    assert counted["calibrate"] == 2  # a constant gain needs no plan


def test_programs_are_as_many_as_structures(counted):
    over = jo.grid(snr_db=[0, 10], users=[2, 3], power=[1, 2], steps=[1, 2])
    job = StudyJob(PLAIN.replace(over=over, rounds=2))
    assert job.settings.programs == 4 and job.settings.count == 16
    layout = job.layout()
    for number in range(layout.count):
        job.compute(layout, number)
    compiled = [name for name in job._programs._compiled if name[0] is compile_._block]
    assert len(compiled) == counted["run_all"] == 4


def test_new_numbers_do_not_retrace(counted):
    """Of algorithms, channel, task, seed: three studies of one shape are one program."""
    study = CALIBRATED.replace(rounds=2, over=jo.grid(snr_db=[0, 10], data_spread=[0.1, 0.2]))
    faster = {
        k: a.replace(local=a.local.replace(step_size=2e-2)) for k, a in study.algorithms.items()
    }
    for changed in (
        {},
        {"over": jo.grid(snr_db=[5, -3], data_spread=[0.3, 0.0]), "key": 7},
        {"algorithms": faster, "channel": jo.Channel(power=2.0), "task": TASK.replace(key=KEY)},
    ):
        study.replace(**changed).run()
    assert counted["run_all"] == 1 and counted["observe"] == 2  # one for each rule


@pytest.mark.parametrize(
    ("changed", "words"),
    [
        ({"over": jo.grid(snr=[1, 2])}, "no field is called snr: did you mean snr_db"),
        ({"over": {"snr_db": [1, 2]}}, "over must be a jo.grid(...), got {'snr_db': [1, 2]}"),
        ({"over": jo.grid(snr_db=[1, np.nan])}, "channel.snr_db must be > -300, got nan"),
        ({"over": jo.grid(steps=[1, 0])}, "algorithm.local.steps must be a whole number ≥ 1"),
        ({"over": jo.grid(users=[2, 2.5])}, "task.users must be a whole number ≥ 1, got 2.5"),
        ({"over": jo.grid(fading=["weak"])}, "channel.fading must be a part of its kind"),
        ({"over": jo.grid(snr_db=["much"])}, "channel.snr_db must be a number or an array"),
        ({"over": jo.grid(gains=[[1, 2, 3], [1, 2]])}, "gains must hold numbers of one shape"),
        ({"over": jo.grid(snr_db=[1], **{"channel.snr_db": [2]})}, "channel.snr_db must be swept"),
        ({"over": jo.grid(algorithm=[COBAAF])}, "algorithm must not be swept"),
        (
            {"over": jo.grid(channel={"a": jo.Channel(), "b": jo.Channel(snr_db=[1, 2])})},
            "channel.snr_db must be one value here, got an array",
        ),
        (
            {
                "channel": jo.Channel(fading=jo.rayleigh()),
                "over": jo.grid(fading={"no": None, "yes": jo.rayleigh()}, csi_error=[0, 0.1]),
            },
            "csi_error must be a field in every setting, and in one there is none",
        ),
        ({"algorithms": {}}, "algorithms must be a dict of at least one algorithm by its label"),
        ({"algorithms": COBAAF}, "algorithms must be a dict of at least one algorithm"),
        ({"keep": "some"}, "keep must be 'trials' or 'mean', got 'some'"),
        ({"reference": "BAAF"}, "reference must be one of the algorithms, COBAAF, constant, got"),
        ({"metric": "speed"}, "metric must be one of the task's scores, gap, loss, got 'speed'"),
        ({"trials": 0}, "trials must be a whole number ≥ 1, got 0"),
        ({"rounds": 2.5}, "rounds must be a whole number ≥ 1, got 2.5"),
        ({"calibration_trials": 0}, "calibration_trials must be a whole number ≥ 1, got 0"),
        ({"key": -1}, "key must be a whole number ≥ 0, got -1"),
        ({"channel": jo.Channel(snr_db=[1, 2])}, "channel.snr_db must be one value here"),
        ({"channel": jo.Channel(snr_db=[[1], [2, 3]])}, "channel.snr_db must be one value here"),
        ({"channel": jo.Channel(gains=[[1], [2, 3]])}, "channel.gains must be a number or an arr"),
        ({"task": 3}, "task must be a part of its kind"),
    ],
)  # fmt: skip
def test_bad_studies_are_one_clear_line(changed, words, monkeypatch):
    monkeypatch.setattr(compile_.Programs, "_compile", None)
    with pytest.raises(jo.InputError) as caught:
        STUDY.replace(**changed).run()
    assert words in str(caught.value) and "\n" not in str(caught.value)


@pytest.mark.parametrize(
    ("options", "words"),
    [
        ({"shard": (2, 2)}, "shard must be (I, n) with I from 0 to n − 1, got (2, 2)"),
        ({"shard": (-1, 2)}, "shard must be (I, n)"),
        ({"memory": 0}, "memory must be a whole number ≥ 1, got 0"),
        ({"memory": "4G"}, "memory must be a whole number ≥ 1, got '4G'"),
        ({"resume": True}, "resume must come with a folder"),
    ],
)
def test_bad_runs_are_one_clear_line(options, words):
    with pytest.raises(jo.InputError) as caught:
        PLAIN.run(**options)
    assert words in str(caught.value) and "\n" not in str(caught.value)


def _scored(*names):
    """A task whose scores have these names."""

    def scores(parameters, x):
        return dict.fromkeys(names, parameters.sum())

    return jo.tasks.empirical(_zeros, _squares, np.ones((2, 4, 2)), scores, np.ones((3, 2)))


def _zeros(key):
    return np.zeros(2, np.float32)


def _squares(parameters, x):
    return (x @ parameters) ** 2


@pytest.mark.parametrize("names", [("norm", "average_norm"), ("norm", "norm_difference")])
def test_scores_do_not_take_the_names_of_a_studys_own_results(names):
    resolve(PLAIN.replace(task=_scored(names[0])))
    with pytest.raises(jo.InputError, match=f"must not name a score '{names[1]}' beside 'norm'"):
        resolve(PLAIN.replace(task=_scored(*names)))
