"""Chunks are small, fit into the memory limit, and do not change the numbers."""

import contextlib
import functools
import itertools
import math
import os
import threading
from concurrent.futures import ThreadPoolExecutor

import jax
import numpy as np
import pytest

import jaxota as jo
from jaxota._core import capacity, devices
from jaxota.study import compile as compile_
from jaxota.study import executor
from jaxota.study import layout as layouts
from jaxota.study.executor import StudyJob

pytestmark = pytest.mark.slow  # most of it compiles

STUDY = jo.Study(
    {"constant": jo.noisy_fedavg(1e-2, 2, 2, precode=jo.Constant(1.0)), "COTAF": jo.cotaf(1e-2, 2)},
    jo.Channel(),
    jo.tasks.synthetic_regression(jax.random.key(1), 4, 6, 3),
    rounds=3,
    trials=12,
    over=jo.grid(snr_db=[0, 5, 10, 15, 20], steps=[1, 2]),
    calibration_trials=4,
)


@pytest.fixture(scope="module")
def whole():
    """All trials and numbers of a structure at once."""
    job = StudyJob(STUDY)
    layout = job.layout()
    assert layout.blocks == {"snr_db": 5, "steps": 1, "trial": 12} and layout.count == 2
    taken = _taken(job)
    return STUDY.run(), taken


def _taken(job):
    """The most bytes that a program of its chunks takes."""
    *settings, trials = job.layout().blocks.values()
    groups = job.settings.groups.values()
    return max(job._programs.block(g, math.prod(settings), trials).memory for g in groups)


def _too_low(group, good=layouts._bytes_per_row):
    """It still knows which group is the largest."""
    return good(group) // 10


@pytest.mark.parametrize("estimate", [layouts._bytes_per_row, _too_low])
@pytest.mark.parametrize("part", [0.7, 0.3])
def test_chunks_fit_into_the_memory_and_give_the_same_numbers(whole, part, estimate, monkeypatch):
    """Whatever the cut, and whatever was expected: a program says itself what it takes."""
    data, taken = whole
    monkeypatch.setattr(layouts, "_bytes_per_row", estimate)
    budget = int(part * taken)
    job = StudyJob(STUDY, memory=budget)
    assert job.layout().count > 2 and _taken(job) <= budget
    assert _taken(job) > budget / 4  # and no smaller than they need be
    pieces = STUDY.run(memory=budget)
    assert pieces.sizes == data.sizes
    scale = 1e-5 * float(np.abs(data.model).max())
    np.testing.assert_allclose(pieces.model, data.model, rtol=0, atol=scale)
    np.testing.assert_allclose(pieces.gap, data.gap, rtol=1e-3)


def test_short_blocks_compile_no_other_program(whole):
    """5 settings in blocks of 2, 12 trials in blocks of 5: what is short is filled up."""
    data, _ = whole
    job = StudyJob(STUDY)
    layout = layouts.study_layout(job.settings, {"snr_db": 2, "trial": 5})
    assert layout.counts == (3, 2, 3)
    sink = layout.empty()
    for number in range(layout.count):
        layout.put(number, job.compute(layout, number), into=sink)
    np.testing.assert_allclose(sink["gap"], data.gap, rtol=1e-3)
    compiled = [name for name in job._programs._compiled if name[0] is compile_._block]
    assert len(compiled) == job.settings.programs == 2


def test_too_little_memory_for_one_trial_is_one_line():
    with pytest.raises(jo.InputError) as caught:
        STUDY.run(memory=1000)
    words = str(caught.value)
    assert words.startswith("memory must be at least ") and words.endswith(", got 1 kB")
    assert "which one trial on each device takes here" in words and "\n" not in words


@pytest.mark.parametrize("sizes", [{}, {"a": 7}, {"a": 7, "b": 4}, {"a": 1, "b": 9, "c": 2}])
def test_blocks_hold_no_more_rows_than_asked(sizes):
    """Trials first, then the last axis; and few more chunks than there need be."""
    for trials, rows in itertools.product((1, 3, 10), (1, 2, 5, 16, 1000)):
        bounds = sizes | {"trial": trials}
        blocks = layouts._blocks(bounds, rows)
        assert list(blocks) == list(bounds)
        assert all(1 <= blocks[name] <= size for name, size in bounds.items())
        assert math.prod(blocks.values()) <= rows
        if rows >= math.prod(bounds.values()):
            assert blocks == bounds
        if rows < trials:
            assert all(blocks[name] == 1 for name in sizes) and blocks["trial"] > rows // 2


def test_chunks_are_small_unless_there_would_be_too_many(monkeypatch):
    """More rounds, users or samples, fewer rows; where there are too many chunks, larger ones."""
    algorithms, task = list(STUDY.algorithms.values()), STUDY.task
    monkeypatch.setattr(capacity, "PRODUCTS", 1e5)

    def rows(rounds=3, task=task, of=1000):
        return capacity.rows_at_once(algorithms, task, rounds, of)

    assert rows(30) <= rows(3) / 9 and rows(task=task.replace(users=8)) <= rows() / 2
    assert rows(rounds=10**9, of=1) == 1
    short = rows(of=1)
    most = capacity.FEW * short
    assert rows(of=most) == short and rows(of=4 * most) == 4 * short
    assert rows(of=1000 * most) == capacity.LARGEST * short


@pytest.fixture
def fast(monkeypatch):
    """Devices that are taken for GPUs: chunks of 2 trials, and three cores that write."""
    monkeypatch.setattr(capacity, "rows_at_once", lambda *_: 2)
    monkeypatch.setattr(devices, "platform", lambda: "gpu")
    monkeypatch.setattr(os, "sched_getaffinity", lambda _: range(3))
    return STUDY.replace(over=jo.grid(snr_db=[0, 10]))


def test_chunks_of_fast_devices_are_larger(monkeypatch):
    algorithms, task = list(STUDY.algorithms.values()), STUDY.task
    rows = capacity.rows_at_once(algorithms, task, 30, 1)
    monkeypatch.setattr(devices, "platform", lambda: "tpu")
    assert capacity.rows_at_once(algorithms, task, 30, 1) // rows == capacity.FASTER


def test_fast_devices_do_not_wait_for_files(fast, monkeypatch):
    """Chunks are written by as many threads as there are cores, and numbers stay the same."""
    three, write = threading.Barrier(3, timeout=30), executor.Memory.write

    def wait_for_others(*arguments):
        three.wait()  # breaks unless three threads write at once
        write(*arguments)

    with monkeypatch.context() as patch:
        patch.setattr(executor.Memory, "write", wait_for_others)
        data = fast.run()
    monkeypatch.setattr(devices, "platform", lambda: "cpu")
    assert data.identical(fast.run())


def test_fast_devices_have_the_next_call_before_a_result_is_fetched(fast, monkeypatch):
    """On CPU, where devices share the cores, one call ends before the next begins."""
    job = StudyJob(fast)
    layout = job.layout()
    job.compute(layout, 0)  # compiled, calibrated
    events, get, simulate = [], jax.device_get, job._programs.simulate
    asked = threading.Barrier(2, timeout=5)

    def simulated(*arguments):
        events.append("call")
        return simulate(*arguments)

    def fetched(values):
        with contextlib.suppress(threading.BrokenBarrierError):
            asked.wait()
        events.append("result")
        return get(values)

    def run():
        events.clear()
        with ThreadPoolExecutor(2) as pool:
            list(pool.map(functools.partial(job.compute, layout), (1, 2)))
        return events

    monkeypatch.setattr(job._programs, "simulate", simulated)
    monkeypatch.setattr(jax, "device_get", fetched)
    assert run() == ["call", "call", "result", "result"]
    asked.abort()
    monkeypatch.setattr(devices, "platform", lambda: "cpu")
    assert run()[:2] == ["call", "result"]


def test_what_a_thread_cannot_write_is_said(fast, monkeypatch):
    def full(*_):
        raise RuntimeError("no room")

    monkeypatch.setattr(executor.Memory, "write", full)
    with pytest.raises(RuntimeError, match="no room"):
        fast.run()


def test_threads_share_the_memory_for_results(fast, monkeypatch):
    job = StudyJob(fast)
    layout = job.layout()
    assert job.threads(layout, 0) == 3
    monkeypatch.setattr(executor, "machine_memory", lambda: 1000)
    assert job.threads(layout, 0) == 2


@pytest.mark.parametrize(
    ("count", "words"),
    [(0, "0 B"), (999, "999 B"), (1000, "1 kB"), (7240, "7.24 kB"), (2e10, "20 GB")],
)
def test_bytes_in_words(count, words):
    assert capacity.format_bytes(count) == words
