"""Readers of compilers' texts on small ones, and the command `jaxota compile`."""

import json
import re
import sys
from pathlib import Path

import pytest

from jaxota.cli import compile, hlo, main, price, targets
from jaxota.errors import InputError

ROOT = Path(__file__).parent.parent
PROGRAM = """HloModule jit_program

%fused_rows (param_0: f32[60,1000], param_1: s32[]) -> f32[1,1000] {
  %param_0 = f32[60,1000]{1,0:T(8,128)} parameter(0)
  %param_1 = s32[]{:T(128)} parameter(1)
  %bitcast.1 = f32[60,1000]{1,0:T(8,128)} bitcast(%param_0)
  ROOT %slice.1 = f32[1,1000]{1,0:T(8,128)} dynamic-slice(%bitcast.1, %param_1, %param_1)
}

%fused_update (param_0: f32[60,1000], param_1: f32[1,1000], param_2: s32[]) -> f32[60,1000] {
  %param_0.2 = f32[60,1000]{1,0:T(8,128)} parameter(0)
  %param_1.2 = f32[1,1000]{1,0:T(8,128)} parameter(1)
  %param_2.2 = s32[]{:T(128)} parameter(2)
  ROOT %update.1 = f32[60,1000]{1,0:T(8,128)} dynamic-update-slice(%param_0.2, %param_1.2)
}

%step (arg: (s32[], f32[1000,10])) -> (s32[], f32[1000,10]) {
  %arg = (s32[]{:T(128)}, /*index=1*/f32[1000,10]{0,1:T(8,128)}) parameter(0)
  %i = s32[]{:T(128)} get-tuple-element(%arg), index=0
  %x = f32[1000,10]{0,1:T(8,128)} get-tuple-element(%arg), index=1
  %gradient = f32[1000,10]{0,1:T(8,128)} custom-call(%x), custom_call_target="it"
  ROOT %out = (s32[]{:T(128)}, f32[1000,10]{0,1:T(8,128)}) tuple(%i, %gradient)
}

%short (arg.1: (s32[], f32[1000,10])) -> pred[] {
  %arg.1 = (s32[]{:T(128)}, f32[1000,10]{0,1:T(8,128)}) parameter(0)
  %limit = s32[]{:T(128)} constant(10)
  %i.1 = s32[]{:T(128)} get-tuple-element(%arg.1), index=0
  ROOT %less = pred[]{:T(512)} compare(%i.1, %limit), direction=LT
}

%round (arg.2: (s32[], f32[1000,10])) -> (s32[], f32[1000,10]) {
  %arg.2 = (s32[]{:T(128)}, f32[1000,10]{0,1:T(8,128)}) parameter(0)
  %all = f32[60,1000]{1,0:T(8,128)} custom-call(), custom_call_target="all"
  %i.2 = s32[]{:T(128)} get-tuple-element(%arg.2), index=0
  %rows = f32[1,1000]{1,0:T(8,128)} fusion(%all, %i.2), kind=kLoop, calls=%fused_rows
  %kept = f32[60,1000]{1,0:T(8,128)} fusion(%all, %rows, %i.2), kind=kLoop, calls=%fused_update
  %next = s32[]{:T(128)} add(%i.2, %i.2)
  ROOT %while.1 = (s32[], f32[1000,10]{0,1}) while(%arg.2), condition=%short, body=%step
}

%long (arg.3: (s32[], f32[1000,10])) -> pred[] {
  %arg.3 = (s32[]{:T(128)}, f32[1000,10]{0,1:T(8,128)}) parameter(0)
  ROOT %true = pred[]{:T(512)} constant(true)
}

ENTRY %main (x: f32[1000,10]) -> f32[1000,10] {
  %x.1 = f32[1000,10]{0,1:T(8,128)} parameter(0)
  %zero = s32[]{:T(128)} constant(0)
  %start = (s32[]{:T(128)}, f32[1000,10]{0,1:T(8,128)}) tuple(%zero, %x.1)
  %while.2 = (s32[], f32[1000,10]{0,1}) while(%start), condition=%long, body=%round, KNOWN
  ROOT %result = f32[1000,10]{0,1:T(8,128)} get-tuple-element(%while.2), index=1
}
""".replace("KNOWN", 'backend_config={"known_trip_count":{"n":"60"}}')

CODE = """= control target key start
LB: loop body
= control target key end

     0   :  { %s1_s0 = smov 0 }
   0x1 LB: > { %v1 = vld [vmem:[%s1]] } /* Start region 7 :: Start region 8 */
   0x2   : >> { %p3_p0 = scmp.ge.s32.totalorder %s1_s1, 5 /* exit */ } /* Start region 9 */
   0x3   : >> { %10 = sbr.rel (!%p3_p0) target = $region9 }
   0x4   : >> { }
   0x5   : >> { %v2 = vadd.f32 %v1, %v1
 a comment that goes on }
   0x6   : >> { }
   0x7   : >> { } /* End region 9 */
   0x8   : > { %p4_p1 = scmp.ge.s32.totalorder (!%p9_p9), %s1_s2, 3  ;;  %v3 = vmov 0 }
   0x9   : > { %11 = sbr.rel (!%p4_p1) target = $region7 }
   0xa   : > { }
   0xb   : > { }
   0xc   : > { }
   0xd   : > { } /* End region 7 */
   0xe   :  { %12 = sbr.rel (%p4_p1) target = $region20 }
"""

THUNKS = """000: kCommandBuffer [source | next=003 (1)]
    001: kCustomKernel [source | sink] loop_add_fusion grid: [1, 1, 1]
    002: kCopy         [source | sink] MemcpyDeviceToDeviceCmd
003: kWhile         [prev=000 (1) | sink]
condition:
    004: kCustomKernel [source | sink] loop_compare_fusion grid: [1, 1, 1]
  body:
    000: kCommandBuffer [source | next=006 (1)]
        005: kCustomKernel [source | sink] loop_slice_fusion grid: [1, 1, 1]
    006: kWhile         [prev=000 (1) | sink]
condition:
        007: kCustomKernel [source | sink] loop_compare_fusion_1 grid: [1, 1, 1]
      body:
        008: kCustomKernel [source | next=009 (1)] loop_subtract_fusion grid: [1563, 1, 1]
        009: kCustomKernel [prev=008 (1) | sink] loop_subtract_fusion_1 grid: [1563, 1, 1]
    010: kCustomKernel [source | sink] loop_reduce_fusion grid: [1, 1, 1]
"""


def test_loops_turn_as_often_as_known_or_as_their_condition_says():
    run = {use.op.name: use for use in hlo.uses(hlo.parse(PROGRAM))}
    assert set(run) == {"gradient", "all", "rows", "kept", "next"}
    assert run["rows"].times == 60 and run["gradient"].times == 600
    assert run["gradient"].loops == (("while.2", 60), ("while.1", 10))


def test_a_branch_is_taken_at_its_share():
    text = """%yes (a: f32[]) -> f32[] {
  %a = f32[] parameter(0)
  ROOT %scored = f32[] sqrt(%a)
}

%no (b: f32[]) -> f32[] {
  ROOT %b = f32[] parameter(0)
}

ENTRY %main (c: f32[], d: s32[]) -> f32[] {
  %c = f32[] parameter(0)
  %d = s32[] parameter(1)
  ROOT %if = f32[] conditional(%d, %c, %c), branch_computations={%no, %yes}
}
"""
    (use,) = hlo.uses(hlo.parse(text), share=1 / 5)
    assert use.op.name == "scored" and use.times == 1 / 5


@pytest.mark.parametrize(
    "kind, size",
    [
        ("f32[1000,10]{1,0}", 40_000),
        ("f32[1000,10]{1,0:T(8,128)}", 4 * 1000 * 128),  # the minor axis fills 128 lanes
        ("f32[1000,10]{0,1:T(8,128)}", 4 * 16 * 1024),
        ("f32[1000,20,10,11]{2,1,0,3:T(8,128)}", 4 * 11 * 1000 * 24 * 128),
        ("bf16[3]{0:T(1024)}", 2048),
        ("pred[]{:T(512)}", 1),
        ("(s32[2]{0}, u8[3]{0})", 11),
        ("f32[8,128]{1,0:T(8,128)S(1)}", 0),  # in the core's own memory
    ],
)
def test_bytes_are_those_of_whole_tiles(kind, size):
    assert hlo.padded(kind) == size


def test_a_slice_moves_what_it_takes_and_an_update_what_is_new():
    program = hlo.parse(PROGRAM)
    ops = {op.name: op for ops in program.values() for op in ops}
    types = {name: op.type for name, op in ops.items()}
    row, model = hlo.padded("f32[1,1000]{1,0:T(8,128)}"), hlo.padded(ops["gradient"].type)
    assert hlo.moved(program, ops["rows"], types) == pytest.approx(2 * row, abs=16)
    assert hlo.moved(program, ops["kept"], types) == pytest.approx(2 * row, abs=16)
    assert hlo.moved(program, ops["gradient"], types) == 2 * model


def test_bundles_of_loops_count_as_often_as_they_turn():
    # Outside are the first and the last; 13 bundles three times, of these 6 five times, with the
    # four that run while a jump is taken.
    assert hlo.cycles(CODE) == 2 + 3 * (7 + 5 * 6)


def test_an_unknown_number_of_turns_counts_once():
    assert hlo.cycles(CODE.replace("%s1_s2, 3", "%s1_s2, %s7")) == 2 + 7 + 5 * 6


def test_a_loop_that_copies_rows_turns_as_often_as_they_need():
    copying = CODE.replace("%s1_s1, 5 /* exit", "%s1_s1, %s7 /* exit")
    copying = copying.replace(
        "   0x4   : >> { }", "   0x4   : >> { %13 = dma.hbm_to_vmem /*hbm=*/%s8 }"
    )
    assert copying.count("dma") == 1
    assert hlo.cycles(copying) == 2 + 3 * (7 + 6)
    assert hlo.cycles(copying, rows=20) == 2 + 3 * 7 + 20 * 6  # 20 turns in all


def test_rows_that_a_fusion_gathers_are_counted():
    rows = "gather(%table, %drawn), offset_dims={1}, slice_sizes={1,784}"
    head = "%fused (table: bf16[6,784]) -> bf16[5,4,784] {"
    text = f"{head}\n  ROOT %g = bf16[5,4,784]{{2,1,0}} {rows}\n}}"
    program = hlo.parse(text)
    fusion = hlo.Op("f", "bf16[5,4,784]{2,1,0}", "fusion", (), "), kind=kCustom, calls=%fused")
    assert hlo.rows_gathered(program, fusion) == 20
    assert hlo.rows_gathered(program, fusion._replace(rest=")")) == 0


def test_launches_in_graphs_are_counted_loop_by_loop():
    assert hlo.graphs(THUNKS) == [1.0, 0.5, 0.0]


@pytest.fixture
def folder(tmp_path):
    (tmp_path / "program.txt").write_text(PROGRAM)
    (tmp_path / "dump").mkdir()
    return tmp_path


def test_a_tpu_is_priced_by_bundles_or_bytes(folder):
    chip = targets.CHIPS["v5e"]
    bundles = "\n".join(f"  {n:#x}   :  {{ }}" for n in range(1, 15_001))
    (folder / "dump" / "17-gradient-03-final_bundles.txt").write_text(bundles)
    name = "17-gradient-02-schedule-analysis_final_bundles.txt"
    (folder / "dump" / name).write_text("0x1 : { }")
    found = price.price(chip, folder, rounds=60, steps=10)
    assert found.top[0].name == "gradient" and found.top[0].bound == "arithmetic"
    assert found.top[0].seconds == pytest.approx(15_000 / 1.5e9)
    assert found.bound == "arithmetic"
    assert found.step_kernels == 1 and found.round_kernels == 10 + 3  # a sum of scalars is none
    assert found.unpriced == 3  # `all`, `rows` and `kept` have no machine code
    # With less code than bytes, the bytes count.
    (folder / "dump" / "17-gradient-03-final_bundles.txt").write_text("  0x1   :  { }")
    found = price.price(chip, folder, rounds=60, steps=10)
    gradient = next(row for row in found.top if row.name == "gradient")
    assert gradient.bound == "memory"
    assert gradient.seconds == pytest.approx(2 * 4 * 16 * 1024 / 819e9)


def test_equal_operations_share_the_code_of_one(folder):
    twice = "  %again = f32[1000,10]{0,1:T(8,128)} custom-call(%x), custom_call_target"
    text = PROGRAM.replace("  ROOT %out =", f'{twice}="it"\n  ROOT %out =')
    (folder / "program.txt").write_text(text)
    (folder / "dump" / "17-gradient-03-final_bundles.txt").write_text("  0x1   :  { }")
    assert price.price(targets.CHIPS["v5e"], folder, 60, 10).unpriced == 3


def test_a_gpu_is_priced_by_xlas_figures_and_launches(folder):
    cost = (
        '"reification_cost":[{"end_to_end_cycles":1,"exec_time_us":7.5,"compute_time_us":7.0,'
        '"memory_access_time_us":1.0,"name":""}]'
    )
    text = re.sub(r":T\([\d,]+\)", "", PROGRAM)
    text = text.replace('custom_call_target="it"', f'custom_call_target="it", config={{{cost}}}')
    (folder / "program.txt").write_text(text)
    found = price.price(targets.CHIPS["h100"], folder, rounds=60, steps=10)
    rows = {row.name: row for row in found.top}
    assert rows["gradient"].seconds == pytest.approx(7.5e-6)
    assert rows["gradient"].bound == "arithmetic"
    assert rows["rows"].seconds == price.LAUNCH and rows["rows"].bound == "launches"
    assert found.unpriced == 1  # the call of `all`
    # One of two launches of a round is in a graph.
    listed = folder / "dump" / "module.thunk_sequence_after_thunk_passes.txt"
    listed.write_text(THUNKS)
    rows = {row.name: row for row in price.price(targets.CHIPS["h100"], folder, 60, 10).top}
    assert rows["rows"].seconds == pytest.approx((price.LAUNCH + price.NODE) / 2)
    # With other loops than the program's, none is believed.
    listed.write_text(THUNKS.replace("006: kWhile", "006: kCopy"))
    rows = {row.name: row for row in price.price(targets.CHIPS["h100"], folder, 60, 10).top}
    assert rows["rows"].seconds == price.LAUNCH


@pytest.mark.parametrize(
    "name, chips, shape",
    [("v5e", 1, (1, 1)), ("v5e:2x4", 8, (2, 4)), ("h100", 1, (1,)), ("h100:8", 8, (8,))],
)
def test_names_of_targets(name, chips, shape):
    target = targets.parse(name)
    assert target.chips == chips and target.shape == shape


@pytest.mark.parametrize("name", ["", "v5e:", "v5e:8", "v5e:0x2", "h100:2x2", "a100", "h100:x"])
def test_other_names_are_refused(name):
    with pytest.raises(InputError, match="--for must be"):
        targets.parse(name)


@pytest.mark.parametrize("name, package", [("v5e", "libtpu=="), ("h100", "jax-cuda12-plugin==")])
def test_a_missing_compiler_is_a_line_that_says_what_to_install(monkeypatch, capsys, name, package):
    monkeypatch.setattr(targets.importlib.util, "find_spec", lambda name: None)
    assert main.main(["compile", "fig1", "--for", name]) == 2
    (line,) = capsys.readouterr().err.splitlines()
    assert f"--for {name} needs" in line and "pip install" in line and package in line
    assert "://" not in line


def test_a_process_that_fails_is_said(tmp_path):
    def ending(code, **more):
        return compile.compiled([sys.executable, "-c", code], None, tmp_path, **more)

    assert "SIGABRT" in ending("import os; os.abort()")
    assert ending("raise ValueError('no such thing')") == "fails: ValueError: no such thing"
    assert "within 1 s" in ending("import time; time.sleep(60)", seconds=1)
    assert ending("") == ""
    with pytest.raises(InputError, match="trials must be"):
        ending("import sys; print('trials must be', file=sys.stderr); sys.exit(2)")


def test_compile_here(tmp_path, capsys):
    study = tmp_path / "mine.py"
    study.write_text(
        "import jaxota as jo\n"
        "task = jo.tasks.synthetic_regression(0, users=3, samples=10, dim=2)\n"
        "small = jo.Study({'COTAF': jo.cotaf(1e-2, 2, 2)}, jo.Channel(10.0), task, 4, 6)\n"
    )
    assert main.main(["compile", str(study), "--trials", "8"]) == 0
    told = capsys.readouterr().out
    assert "small compiled for here, 8 trials, 4 rounds" in told
    assert "Times are predicted for" in told
    row = next(line for line in told.splitlines() if "COTAF" in line)
    cells = [cell.strip() for cell in row.strip("│").split("│")]
    assert cells[0] == "COTAF" and cells[1].endswith(" s") and cells[5].startswith("≥ ")
    assert cells[6:] == ["–"] * 5


def test_bad_input_of_compile_is_one_line(capsys):
    for words in (["fig9"], ["fig1", "--for", "a100"], ["fig1", "--trials", "0"]):
        assert main.main(["compile", *words]) == 2
        (line,) = capsys.readouterr().err.splitlines()
        assert line.startswith("jaxota: ")


def test_tables_of_the_page_are_made_of_the_stored_results(monkeypatch):
    monkeypatch.syspath_prepend(ROOT / "docs")
    import put_accelerators

    results = json.loads(put_accelerators.RESULTS.read_text())
    page = put_accelerators.PAGE.read_text(encoding="utf-8")
    assert put_accelerators.filled(page, results) == page
    results["after"]["h100"][put_accelerators.SPREAD]["seconds"] *= 2
    assert put_accelerators.filled(page, results) != page


@pytest.mark.slow
def test_libtpu_compiles_and_is_read(tmp_path):
    """The real compiler's files are found and read: machine code for what runs, and its loops."""
    pytest.importorskip("libtpu", reason="libtpu is not installed")
    code = (
        "import jax, jax.numpy as jnp, sys\n"
        "from pathlib import Path\n"
        "from jaxota.cli import targets\n"
        "device = targets.devices(targets.parse('v5e'))[0]\n"
        "place = jax.sharding.SingleDeviceSharding(device)\n"
        "x = jax.ShapeDtypeStruct((1024, 1024), 'float32', sharding=place)\n"
        "step = lambda i, x: jnp.sin(x @ x)\n"
        "lowered = jax.jit(lambda x: jax.lax.fori_loop(0, 7, step, x)).lower(x)\n"
        "targets.compile_into(Path(sys.argv[1]), lowered)\n"
    )
    command = [sys.executable, "-c", code, str(tmp_path)]
    target = targets.parse("v5e")
    assert compile.compiled(command, target, tmp_path, 300) == ""
    facts = json.loads((tmp_path / "facts.json").read_text())
    assert facts["arguments"] == 4 * 1024**2
    found = price.price(target.chip, tmp_path, rounds=7, steps=1)
    products = 7 * 2 * 1024**3
    assert found.unpriced == 0
    # Between the peak in bfloat16 and a hundredth of it.
    assert products / 197e12 < found.seconds < 100 * products / 197e12
