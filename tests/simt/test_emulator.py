"""The emulation of CUDA: faults that it has to find, and kernels that it has to run as a GPU would."""

import re
import subprocess
import sys
from types import ModuleType

import pytest
import torch
from simt.build import ROOT, Unavailable, build, load
from torch import Tensor

SEEDS = range(6)


def plant(selftest: ModuleType, name: str, seed: int = 0, blocks: int = 1, threads: int = 64) -> Tensor:
    x, out = torch.arange(64.0), torch.zeros(64)
    selftest.seed(seed)
    selftest.planted(name, x.data_ptr(), out.data_ptr(), blocks, threads)
    return out


# ------------------------------------------------------------------------------------------- faults


@pytest.mark.parametrize("name", ["missing_barrier", "missing_barrier_in_dynamic_memory", "missing_warp_barrier"])
def test_missing_barrier_shows_unwritten_memory(selftest, name):
    assert all(plant(selftest, name, seed).isnan().any() for seed in SEEDS)


def test_missing_second_barrier_shows_another_result_for_another_seed(selftest):
    results = {tuple(plant(selftest, "missing_second_barrier", seed).tolist()) for seed in SEEDS}
    assert len(results) > 1


@pytest.mark.parametrize("seed", SEEDS)
@pytest.mark.parametrize(
    ("name", "told"),
    [
        ("divergent_barrier", ["40 x waits at __syncthreads", "24 x has ended: thread (40, 0, 0)"]),
        ("barrier_after_return", ["63 x waits at __syncthreads", "1 x has ended: thread (63, 0, 0)"]),
        ("two_barriers_for_one", ["32 x waits at __syncthreads", "thread (0, 0, 0)", "thread (1, 0, 0)"]),
        ("divergent_shuffle", ["40 x waits at __shfl_xor_sync", "mask 0xffffffff", "24 x has ended"]),
        ("shuffle_after_return", ["31 x waits at __shfl_down_sync", "33 x has ended: thread (5, 0, 0)"]),
        ("shuffle_against_barrier", ["waits at __syncthreads", "thread (32, 0, 0)", "1 x has ended: thread (31"]),
        ("masks_that_differ", ["mask 0xffffffff", "has ended"]),
        ("caller_outside_its_mask", ["__shfl_xor_sync by a thread that is not in its mask"]),
        ("lane_outside_the_mask", ["reads lane 16, which is not in the mask"]),
        ("width_of_twelve", ["__shfl_xor_sync with a width of 12"]),
    ],
)
def test_rule_that_is_broken_is_told(selftest, name, told, seed):
    with pytest.raises(selftest.Error) as raised:
        plant(selftest, name, seed, blocks=2)
    message = str(raised.value)
    assert f"planted::{name}(float const*, float*), block (" in message
    assert "planted.cuh:" in message
    for part in told:
        assert part in message


def test_active_lanes_are_not_always_all(selftest):
    def outcome(seed: int) -> str:
        try:
            plant(selftest, "active_lanes_taken_for_all", seed)
        except selftest.Error as error:
            return re.sub(".*(reads lane 0).*", r"\1", str(error), flags=re.DOTALL)
        return "right"

    assert {outcome(seed) for seed in range(100)} == {"right", "reads lane 0"}


def test_lanes_that_a_block_does_not_have_are_missed(selftest):
    with pytest.raises(selftest.Error, match=r"16 x waits at __shfl_xor_sync.*mask 0xffffffff"):
        plant(selftest, "width_of_twelve".replace("width_of_twelve", "divergent_shuffle"), threads=16)


@pytest.mark.parametrize(
    ("options", "told"),
    [
        ({"blocks": 0}, r"a grid of \(0, 1, 1\)"),
        ({"threads": 1025}, r"a block of \(1025, 1, 1\)"),
        ({"threads": 0}, r"a block of \(0, 1, 1\)"),
    ],
)
def test_launch_that_a_device_refuses(selftest, options, told):
    with pytest.raises(selftest.Error, match=told):
        plant(selftest, "missing_barrier", **options)


def test_too_much_dynamic_memory_is_refused(selftest):
    with pytest.raises(selftest.Error, match="49156 bytes of dynamic shared memory"):
        selftest.reverse(0, 0, 1, 32, 1, 49156)


def test_a_failed_launch_leaves_nothing_behind(selftest):
    with pytest.raises(selftest.Error):
        plant(selftest, "divergent_barrier")
    x, out = torch.arange(128), torch.zeros(1, dtype=torch.int64)
    selftest.block_sum_int64(x.data_ptr(), out.data_ptr(), 128, 1)
    assert out.item() == x.sum().item()


@pytest.fixture(scope="session")
def sanitized() -> list[str]:
    """What starts a planted kernel beneath the sanitizers: a command that lacks the kernel's name."""
    try:
        library = build("selftest", sanitized=True)
        sanitize = load("sanitize", ROOT / ".ci/sanitize.py")
        try:
            runtimes = [sanitize.find_runtime(sanitize.find_compiler(), f"lib{name}.so") for name in ("asan", "ubsan")]
        except sanitize.Unavailable as reason:
            raise Unavailable(str(reason)) from None
    except Unavailable as reason:
        pytest.skip(f"no sanitizers: {reason}")
    options = f"{sanitize.OPTIONS}:detect_leaks=0:detect_stack_use_after_return=1"
    environment = [f"LD_PRELOAD={':'.join(runtimes)}", f"ASAN_OPTIONS={options}", f"UBSAN_OPTIONS={sanitize.OPTIONS}"]
    # Without numpy or torch: ctypes has memory of an exact size, too.
    code = """
import ctypes, importlib.util, sys
path, name = sys.argv[1:]
spec = importlib.util.spec_from_file_location("selftest", path)
selftest = importlib.util.module_from_spec(spec)
x, out = (ctypes.c_float * 64)(*range(64)), (ctypes.c_float * 64)()
try:
    selftest.planted(name, ctypes.addressof(x), ctypes.addressof(out), 2, 64)
except selftest.Error as error:
    print(error)
print("end")
"""
    return ["env", *environment, sys.executable, "-c", code, str(library)]


@pytest.mark.parametrize(
    ("name", "told"),
    [
        ("reads_one_too_many", "heap-buffer-overflow"),
        ("reads_one_too_many_of_shared", "global-buffer-overflow"),
        ("reads_one_too_many_of_a_template", "global-buffer-overflow"),
        ("reads_one_too_many_of_dynamic", "heap-buffer-overflow"),
        ("load_of_four_that_is_not_aligned", "misaligned address"),
    ],
)
def test_access_out_of_bounds_is_seen(sanitized, name, told):
    done = subprocess.run([*sanitized, name], capture_output=True, text=True)
    assert done.returncode != 0
    assert told in done.stderr
    assert f"planted::{name}" in done.stderr
    assert "end" not in done.stdout


@pytest.mark.parametrize("name", ["missing_second_barrier", "divergent_shuffle", "two_barriers_for_one"])
def test_sanitizers_do_not_complain_of_fibers(sanitized, name):
    done = subprocess.run([*sanitized, name], capture_output=True, text=True)
    assert done.returncode == 0, done.stderr
    assert done.stderr == ""
    assert ("not every thread came" in done.stdout) == (name != "missing_second_barrier")


# -------------------------------------------------------------------------------- what has to work


@pytest.mark.parametrize("dtype", ["float32", "float64", "int32", "int64"])
def test_block_sum_in_any_order(selftest, dtype):
    x = (torch.randn(1000, dtype=torch.float64) * 100).to(getattr(torch, dtype))
    results = []
    for seed in SEEDS:
        out = torch.zeros(3, dtype=x.dtype)
        selftest.seed(seed)
        getattr(selftest, f"block_sum_{dtype}")(x.data_ptr(), out.data_ptr(), 1000, 3)
        results.append(out)
    assert all(torch.equal(results[0], other) for other in results[1:])
    block = torch.arange(1000) // 128 % 3
    expected = torch.stack([x[block == b].double().sum() for b in range(3)])
    torch.testing.assert_close(results[0].double(), expected, rtol=1e-5, atol=1e-3)


def test_warp_scan(selftest):
    x = torch.randint(-50, 50, (96,), dtype=torch.int32)
    out = torch.zeros_like(x)
    selftest.warp_scan(x.data_ptr(), out.data_ptr(), 96)
    assert torch.equal(out, x.view(3, 32).cumsum(1).flatten().int())


@pytest.mark.parametrize("dtype", ["float32", "float64", "int32", "int64"])
@pytest.mark.parametrize("width", [1, 2, 8, 32])
@pytest.mark.parametrize("by", [0, 1, 3, 7, 8, 31])
def test_shuffles_within_segments(selftest, by, width, dtype):
    # Numbers whose upper halves differ as well.
    x = (torch.arange(64, dtype=torch.float64) * 1.3e9).to(getattr(torch, dtype))
    out = torch.zeros(4, 64, dtype=x.dtype)
    getattr(selftest, f"shuffles_{dtype}")(x.data_ptr(), out.data_ptr(), 64, by, width)
    for thread in range(64):
        warp, lane = thread // 32 * 32, thread % 32
        first = lane // width * width
        up = lane - by if lane - by >= first else lane
        down = lane + by if lane + by < first + width else lane
        xor = lane ^ by if lane ^ by < first + width else lane
        sources = [warp + source for source in (first + by % width, up, down, xor)]
        assert torch.equal(out[:, thread], x[sources])


@pytest.mark.parametrize("seed", SEEDS)
def test_parts_of_a_warp_with_masks_of_their_own(selftest, seed):
    x, out = torch.randint(0, 100, (64,)).float(), torch.zeros(64)
    selftest.seed(seed)
    selftest.parts(x.data_ptr(), out.data_ptr())
    for warp, got in zip(x.view(2, 32), out.view(2, 32), strict=True):
        expected = warp.clone()
        expected[:8] = warp[:8].sum()
        expected[8:24] = warp[8:24].sum()
        assert torch.equal(got, expected + warp[31])


@pytest.mark.parametrize(("rounds", "threads"), [(1, 1), (3, 33), (7, 128), (4, 1024)])
def test_dynamic_shared_memory_in_any_order(selftest, rounds, threads):
    x = torch.randn(2, threads)
    for seed in SEEDS:
        out = torch.zeros_like(x)
        selftest.seed(seed)
        selftest.reverse(x.data_ptr(), out.data_ptr(), 2, threads, rounds, 4 * threads)
        assert torch.equal(out, x.flip(1) if rounds % 2 else x)


@pytest.mark.parametrize("share", [0.0, 0.3, 1.0])
def test_votes(selftest, share):
    x = (torch.rand(64) < share).int() * 5
    out = torch.zeros(64, 6, dtype=torch.int32)
    selftest.votes(x.data_ptr(), out.data_ptr(), 64)
    count = int((x != 0).sum())
    for warp in range(2):
        votes = [bool(vote) for vote in x[32 * warp : 32 * warp + 32]]
        mask = sum(vote << lane for lane, vote in enumerate(votes))
        ballot = mask - 2**32 if mask >= 2**31 else mask
        expected = [ballot, any(votes), all(votes), count, count > 0, count == 64]
        assert (out[32 * warp : 32 * warp + 32] == torch.tensor(expected)).all()


@pytest.mark.parametrize("seed", SEEDS)
def test_active_lanes_are_groups_that_meet(selftest, seed):
    x = torch.randint(0, 100, (32,), dtype=torch.int32)
    out, masks = torch.zeros(1, dtype=torch.int32), torch.zeros(32, dtype=torch.int32)
    selftest.seed(seed)
    selftest.active_sum(x.data_ptr(), out.data_ptr(), masks.data_ptr())
    groups = {mask % 2**32 for mask in masks.tolist()}
    assert sum(groups) == 2**32 - 1  # each lane in exactly one
    assert out.item() == x.sum().item()


@pytest.mark.parametrize("kind", ["int", "unsigned", "unsigned_long_long"])
def test_atomic_tickets_are_given_once(selftest, kind):
    out = torch.zeros(300, dtype=torch.int32)
    assert getattr(selftest, f"tickets_{kind}")(out.data_ptr(), 3, 100) == 300
    assert (out == 1).all()


def test_every_thread_of_every_block_runs_once_and_knows_its_place(selftest):
    out = torch.zeros(2 * 3 * 4, 5 * 6 * 7, dtype=torch.int32)
    selftest.places(out.data_ptr(), (2, 3, 4), (5, 6, 7))
    assert torch.equal(out, torch.arange(1, 211, dtype=torch.int32).expand(24, -1))


@pytest.mark.parametrize("dtype", ["float32", "float64"])
def test_every_block_finds_shared_memory_poisoned(selftest, dtype):
    out = torch.zeros(3, 4, dtype=getattr(torch, dtype))
    getattr(selftest, f"unwritten_{dtype}")(out.data_ptr(), 3)
    assert out.isnan().all()


@pytest.mark.parametrize("kind", ["half", "bfloat16"])
def test_all_numbers_of_16_bits_widen_as_in_torch(selftest, kind):
    narrow = torch.arange(-(2**15), 2**15).short().view(getattr(torch, kind))
    wide = torch.zeros(2**16)
    getattr(selftest, f"widen_{kind}")(narrow.data_ptr(), wide.data_ptr(), 2**16)
    expected = narrow.float()
    assert torch.equal(wide.isnan(), expected.isnan())
    number = ~expected.isnan()
    assert torch.equal(wide[number].view(torch.int32), expected[number].view(torch.int32))


@pytest.mark.parametrize("kind", ["half", "bfloat16"])
def test_floats_narrow_as_in_torch(selftest, kind):
    dtype = getattr(torch, kind)
    # Any bits; and what lies between two neighbours, exactly in the middle or just beside it.
    anything = torch.randint(-(2**31), 2**31, (300_000,)).int().view(torch.float32)
    exact = torch.arange(-(2**15), 2**15).short().view(dtype).float()
    bits = exact[exact.isfinite()].view(torch.int32)
    last = 2**13 if kind == "half" else 2**16  # one unit of the narrow format's last place, where it is normal
    between = torch.cat([(bits + last // 2 + shift).view(torch.float32) for shift in (-1, 0, 1)])
    # Subnormal halves lie 2^-24 apart.
    middle = (torch.arange(2048) + 0.5) * 2.0**-24
    subnormal = torch.cat([(middle.view(torch.int32) + shift).view(torch.float32) for shift in (-1, 0, 1)])
    x = torch.cat((anything, exact, between, subnormal, -subnormal))
    got = torch.zeros(x.numel(), dtype=dtype)
    getattr(selftest, f"narrow_{kind}")(x.data_ptr(), got.data_ptr(), x.numel())
    expected = x.to(dtype)
    assert torch.equal(got.isnan(), expected.isnan())
    number = ~expected.isnan()
    assert torch.equal(got[number].view(torch.int16), expected[number].view(torch.int16))
