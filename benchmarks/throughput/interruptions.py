"""Does a run that is interrupted or killed, at any moment, leave anything half-written?

    python benchmarks/throughput/interruptions.py [--interruptions 60] [--kills 40] [--only fig1]

`jaxota run fig1` and `run fig4` (on MNIST where JAXOTA_DATA names it, else on digits) are stopped
at moments counted from a mark that the process prints before its first line, spread over the length
of a whole run: with compiled programs at hand and without, into an empty folder and over older
results. After Ctrl-C (SIGINT): exit code 130, one line, and either nothing new, or all results, and
the line says so. After SIGKILL: results are all old or all new, and the next run is a whole one
that leaves no drafts. Prints the counts, and every case that was otherwise.
"""

import argparse
import collections
import contextlib
import hashlib
import itertools
import os
import shutil
import signal
import subprocess
import sys
import tempfile
import time
from pathlib import Path

BEGIN = """
import signal
signal.signal(signal.SIGINT, signal.default_int_handler)
from jaxota.__main__ import main
print("begun", flush=True)
main()
"""
SIZES = {"fig1": ("--trials", "40"), "fig4": ("--trials", "3", "--rounds", "20")}


def started(name, folder, cache, seed=0):
    """The command after its mark."""
    data = () if os.environ.get("JAXOTA_DATA") or name != "fig4" else ("--dataset", "digits")
    words = "run", name, *SIZES[name], *data, "--out", str(folder), "--seed", str(seed)
    process = subprocess.Popen(
        [sys.executable, "-c", BEGIN, *words],
        env=os.environ | {"JAXOTA_CACHE": str(cache)},
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        text=True,
    )
    assert process.stdout.readline() == "begun\n", process.communicate()
    return process


def whole(name, folder, cache, seed=0):
    """Seconds that a run takes that nothing disturbs."""
    process, begun = started(name, folder, cache, seed), time.monotonic()
    _, errors = process.communicate()
    assert (process.returncode, errors) == (0, ""), errors
    return time.monotonic() - begun


def contents(folder):
    """A fingerprint of each file, hidden ones too."""
    files = [path for path in folder.rglob("*") if path.is_file()] if folder.exists() else []
    return {
        str(path.relative_to(folder)): hashlib.sha256(path.read_bytes()).hexdigest()
        for path in files
    }


def results(held, name):
    return {f: held.get(f) for f in (f"{name}.png", f"{name}.csv", f"{name}.nc")}


def stop(name, how, share, seconds, warm, older, scratch):
    """One case: what was wrong with it, and which end it came to."""
    folder, cache = scratch / "out", scratch / "cache"
    for path in (folder, cache):
        shutil.rmtree(path, ignore_errors=True)
    if warm:
        shutil.copytree(scratch / name / "cache", cache)
    elif (scratch / name / "cache" / "datasets").exists():
        shutil.copytree(scratch / name / "cache" / "datasets", cache / "datasets")
    if older:
        shutil.copytree(scratch / name / "older", folder)
    before = contents(folder)
    process, begun = started(name, folder, cache), time.monotonic()
    with contextlib.suppress(subprocess.TimeoutExpired):
        process.wait(0.005 + share * seconds[warm])  # sooner, Python itself would answer
        # The machine has become faster: the same again, on a shorter run.
        seconds[warm] = time.monotonic() - begun
        return stop(name, how, share, seconds, warm, older, scratch)
    process.send_signal(how)
    _, errors = process.communicate(timeout=300)
    held = contents(folder)
    was, now = results(before, name), results(held, name)
    new = all(now[f] not in (was[f], None) for f in now)
    if process.returncode == 0:
        return "it was ending", [] if new else ["results are missing"]
    wrong = [] if new or now == was else [f"some results are new: {held} after {before}"]
    if how == signal.SIGINT:
        line = f"when the results had been written to {folder}" if new else "nothing was written"
        if process.returncode != 130 or errors != f"jaxota: interrupted, {line}\n":
            wrong.append(f"exit code {process.returncode}: {errors}")
        if held.keys() - before.keys() and not new:
            wrong.append(f"left behind: {held.keys() - before.keys()}")
        if not older and not new and folder.exists():
            wrong.append("an empty folder is left")
        return ("all was written" if new else "nothing was written"), wrong
    drafts = len(held) > len(now) - list(now.values()).count(None)
    whole(name, folder, cache)
    after = contents(folder)
    if after.keys() != now.keys():
        wrong.append(f"after the next run there is {after.keys()}")
    end = "drafts were left, and cleared" if drafts else "nothing was left"
    return ("all was written" if new else end), wrong


def main(argv=None):
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--interruptions", type=int, default=60)
    parser.add_argument("--kills", type=int, default=40)
    parser.add_argument("--only", default="fig1,fig4")
    arguments = parser.parse_args(argv)
    names, faults = arguments.only.split(","), 0
    with tempfile.TemporaryDirectory() as folder:
        scratch, lengths = Path(folder), {}
        for name in names:
            if name == "fig4":
                whole(name, scratch / "unused", scratch / name / "cache")  # prepares the data
                for path in (scratch / name / "cache").iterdir():
                    if path.name != "datasets":
                        shutil.rmtree(path)
            cold = whole(name, scratch / name / "older", scratch / name / "cache", seed=1)
            warm = whole(name, scratch / name / "older", scratch / name / "cache", seed=1)
            lengths[name] = [cold, warm]  # in the order of False, True
            print(f"{name}: {cold:.1f} s from the mark to the end, {warm:.1f} s with its programs")
        for how, count in (
            (signal.SIGINT, arguments.interruptions),
            (signal.SIGKILL, arguments.kills),
        ):
            ends = collections.Counter()
            cases = itertools.cycle(itertools.product(names, (False, True), (False, True)))
            for number, (name, warm, older) in zip(range(count), cases, strict=False):
                share = (
                    0.98 * number / max(1, count - 1)
                )  # spread by cases, too, as they take turns
                end, wrong = stop(name, how, share, lengths[name], warm, older, scratch)
                ends[end] += 1
                faults += bool(wrong)
                for line in wrong:
                    print(f"{how.name} at {share:.2f} of {name}, {warm=}, {older=}: {line}")
                if sys.stderr.isatty():
                    print(f"{how.name} {number + 1}/{count}", end="\r", file=sys.stderr)
            told = ", ".join(f"{count} × {end}" for end, count in ends.most_common())
            print(f"{how.name} at {count} moments: {told}")
    print(f"{faults} cases were not as they should be")
    return int(faults > 0)


if __name__ == "__main__":
    sys.exit(main())
