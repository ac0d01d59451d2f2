"""Fields of parts are found by name and set."""

import jax
import pytest

import jaxota as jo
from jaxota.stages.fading import NoFading
from jaxota.study import resolve

ALGORITHM, CHANNEL = jo.cobaaf(0.1, 2, 3), jo.Channel(fading=jo.rayleigh())
TASK = jo.tasks.synthetic_regression(jax.random.key(0), 3, 5, 2)
KNOWN = (
    resolve.field_paths(ALGORITHM, "algorithm")
    | resolve.field_paths(CHANNEL, "channel")
    | resolve.field_paths(TASK, "task")
)


@pytest.mark.parametrize(
    ("name", "path"),
    [
        ("snr_db", "channel.snr_db"),
        ("steps", "algorithm.local.steps"),
        ("step_size", "algorithm.local.step_size"),
        ("csi_error", "channel.fading.csi_error"),
        ("answer.threshold", "channel.fading.answer.threshold"),
        ("users", "task.users"),
        ("local", "algorithm.local"),
        ("channel", "channel"),
        ("channel.power", "channel.power"),
    ],
)
def test_a_name_finds_its_path(name, path):
    assert resolve.find_field(name, KNOWN) == path


@pytest.mark.parametrize(
    ("name", "words"),
    [
        ("snrdb", "no field is called snrdb: did you mean snr_db or"),
        ("step", "no field is called step: did you mean steps or step_size"),
        ("channel.user", "no field is called channel.user: did you mean users"),
        ("xyzzy", "no field is called xyzzy: choose from answer, antennas, batch"),
        ("", "no field is called : choose from"),
        ("_db", "no field is called _db"),  # no part of a name
    ],
)
def test_an_unknown_name_suggests_the_nearest(name, words):
    with pytest.raises(jo.InputError) as caught:
        resolve.find_field(name, KNOWN)
    assert str(caught.value).startswith(words) and "\n" not in str(caught.value)


def test_an_ambiguous_name_lists_its_candidates():
    both = resolve.field_paths(jo.Channel(), "here") | resolve.field_paths(jo.Channel(), "there")
    with pytest.raises(jo.InputError) as caught:
        resolve.find_field("snr_db", both)
    assert str(caught.value) == "snr_db must be spelled out, one of here.snr_db, there.snr_db"
    assert resolve.find_field("there.snr_db", both) == "there.snr_db"


def test_continuous_fields_are_traced_and_integers_are_not():
    swept = {path.rsplit(".", 1)[-1] for path, metadata in KNOWN.items() if "rank" in metadata}
    assert swept >= {"snr_db", "step_size", "data_spread", "threshold", "csi_error", "key"}
    assert not swept & {"steps", "batch", "users", "snr_per", "fading", "antennas", "channel"}


def test_setting_a_field_keeps_the_rest():
    changed = resolve.set_field(CHANNEL, "channel.fading.answer.threshold", 0.7)
    assert changed.fading.answer.threshold == 0.7
    assert changed.fading.law == CHANNEL.fading.law and changed.snr_db == CHANNEL.snr_db
    assert resolve.set_field(CHANNEL, "channel", "another") == "another"
    assert resolve.set_field(TASK, "task.users", 9).users == 9 and TASK.users == 3


def test_none_sets_the_default_of_a_field_that_holds_a_part():
    assert isinstance(resolve.set_field(CHANNEL, "channel.fading", None).fading, NoFading)
    plain = resolve.set_field(ALGORITHM, "algorithm.compress", None).compress
    assert isinstance(plain, jo.Uncompressed)
    assert resolve.set_field(ALGORITHM, "algorithm.local.batch", None).local.batch is None


def test_not_every_part_has_every_field():
    assert {"channel.fading.csi_error", "channel"} <= {*resolve.field_paths(CHANNEL, "channel")}
    assert "channel.fading.csi_error" not in resolve.field_paths(jo.Channel(), "channel")
    assert "algorithm.precode.gain" not in resolve.field_paths(jo.fedavg(0.1, 1), "algorithm")
