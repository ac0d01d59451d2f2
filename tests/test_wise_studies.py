"""The studies of WISE."""


@pytest.mark.slow
def test_a_wrong_noise_is_the_servers_belief_alone(task):
    """Times 1 it is right; otherwise the same noise is drawn, and the level is another."""
    run = functools.partial(
        jo.simulate, KEY, channel=jo.Channel(0.0), task=task, rounds=6, trials=3
    )
    whole = jo.wise(1e-2, 4, 4)
    right, wrong = (
        run(whole.replace(server=ablation.Misled(whole.server, x))) for x in (1.0, 10.0)
    )
    np.testing.assert_array_equal(right.model, run(whole).model)
    # The believed noise has a part in τ: the larger it is, the lower the level, and the less noise.
    assert (wrong.deviation[:, 0] < right.deviation[:, 0]).all()
    assert (np.asarray(wrong.power) <= 1 + 1e-5).all()


@pytest.mark.slow
def test_wise_on_images(tmp_path, capsys, monkeypatch):
    """On the digits, as there is no MNIST: the table's leads are those of the accuracies kept."""
    monkeypatch.setenv("JAXOTA_CACHE", "off")
    monkeypatch.setattr(experiment, "at_hand", lambda: ("digits", ""))
    for name, value in {"ROUNDS": 4, "EVERY": 2, "DEALS": 2, "CALIBRATION_TRIALS": 2}.items():
        monkeypatch.setattr(wise_images, name, value)
    assert cli.main(["run", "images", "--trials", "2", "--seed", "3", "--out", str(tmp_path)]) == 0
    printed, errors = capsys.readouterr()
    assert errors == "" and "8×8 digits" in printed and "seed 3" in printed
    data = xarray.load_dataset(tmp_path / "images.nc", engine="h5netcdf")
    last = data.accuracy.sel(partition="iid", snr_db=10.0).isel(round=-1)
    mine = last.sel(algorithm="WISE", step_size=0.01)
    for algorithm in ("COTAF", "BAAF", "COBAAF"):
        lead = float((mine - last.sel(algorithm=algorithm, step_size=0.01)).mean())
        assert f"{lead:+.4f} ±" in printed
    with open(tmp_path / "images.csv", encoding="utf-8") as stream:
        rows = list(csv.DictReader(stream))
    assert len(rows) == 2 * 2 * 5 * 3 * 2
    assert float(rows[1]["mean"]) == pytest.approx(
        float(data.accuracy.isel(partition=0, snr_db=0, algorithm=0, step_size=0, round=1).mean()),
        rel=1e-5,
    )


def test_draws_of_a_test_are_none_that_choices_were_made_on():
    seen = [set(wise.draws(seed)) for seed in range(5)]
    assert all(len(draws) == 16 and not draws & set(wise.DESIGN) for draws in seen)
    assert len(set.union(*seen)) == 5 * 16
    assert wise.draws(0) == list(range(1000, 1016))
    with pytest.raises(jo.InputError, match="seed must be < "):
        wise.job("wise", 2**32 - 1, 1)


def test_ratios_are_to_the_best_that_is_whole():
    """By hand: a baseline that diverged in a trial does not count, nor does WISE at other steps."""
    dims = "algorithm", "step_size", "draw"
    gap = np.array([[[4.0, 2.0], [9.0, 3.0]], [[8.0, 6.0], [0.0, 0.0]], [[5.0, 4.0], [2.0, 1.5]]])
    used = np.array([[8, 8], [8, 7], [8, 8]])
    average = np.array([[1.0, 1.0], [3.5, 0.5], [1.0, 9.0]])
    data = xarray.Dataset(
        {
            "gap_mean": ((*dims, "round"), gap[:, :, None]),
            "average_gap_mean": (dims, average[:, :, None]),
            "used": (dims, used[:, :, None]),
            "trials": (dims, np.full((3, 2, 1), 8)),
        },
        {"algorithm": ["WISE", "A", "B"], "step_size": [wise.STEP_SIZE, 1.0], "round": [5, 9]},
    )
    every = ["A", "B"]
    np.testing.assert_allclose(wise.ratios(data, every, False).values, [[4.0 / 5.0, 2.0 / 4.0]])
    np.testing.assert_allclose(wise.ratios(data, every, True).values, [[4.0 / 2.0, 2.0 / 1.0]])
    np.testing.assert_allclose(wise.ratios(data, ["A"], True).values, [[4.0 / 8.0, 2.0 / 3.5]])
