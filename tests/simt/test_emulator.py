"""The emulation of CUDA: faults that it has to find, and kernels that it has to run as a GPU would."""

import functools
import math
import os
import re
import subprocess
import sys
from collections.abc import Callable

import pytest
import torch
from simt import planted
from simt.build import Unavailable, build, sanitize

SEEDS = range(6)


@pytest.fixture(scope="session", params=["", "-DSIMT_UCONTEXT"], ids=["own switch", "ucontext"])
def plant(request) -> Callable[..., list[float] | str]:
    """Runs a kernel by its name: its 64 numbers, or what the emulation says. With both ways to switch fibers."""
    try:
        library = build("planted", *filter(None, [request.param]))
    except Unavailable as reason:
        pytest.skip(f"no emulation of CUDA: {reason}")
    return functools.partial(planted.run, str(library))


# ------------------------------------------------------------------------------------------- faults


@pytest.mark.parametrize("name", ["missing_barrier", "missing_barrier_in_dynamic_memory", "missing_warp_barrier"])
def test_missing_barrier_shows_unwritten_memory(plant, name):
    assert all(any(map(math.isnan, plant(name, seed))) for seed in SEEDS)


def test_missing_second_barrier_shows_another_result_for_another_seed(plant):
    assert len({tuple(plant("missing_second_barrier", seed)) for seed in SEEDS}) > 1


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
def test_rule_that_is_broken_is_told(plant, name, told, seed):
    message = plant(name, seed, blocks=2)
    assert f"planted::{name}(float const*, float*), block (" in message
    assert "planted.cuh:" in message
    for part in told:
        assert part in message


def test_active_lanes_are_not_always_all(plant):
    def outcome(seed: int) -> str:
        result = plant("active_lanes_taken_for_all", seed)
        return "refused" if "reads lane 0, which is not in the mask" in result else str(result)

    first_of_warp = str([0.0] * 32 + [32.0] * 32)
    assert {outcome(seed) for seed in range(200)} == {"refused", first_of_warp}


def test_lanes_that_a_block_does_not_have_are_missed(plant):
    assert re.search(r"16 x waits at __shfl_xor_sync.*mask 0xffffffff", plant("divergent_shuffle", threads=16))


@pytest.mark.parametrize(
    ("options", "told"),
    [
        ({"blocks": 0}, "a grid of (0, 1, 1)"),
        ({"threads": 1025}, "a block of (1025, 1, 1)"),
        ({"threads": 0}, "a block of (0, 1, 1)"),
    ],
)
def test_launch_that_a_device_refuses(plant, options, told):
    assert told in plant("missing_barrier", **options)


def test_too_much_dynamic_memory_is_refused(selftest):
    with pytest.raises(selftest.Error, match="49156 bytes of dynamic shared memory"):
        selftest.reverse(0, 0, 1, 32, 1, 49156)


def test_a_failed_launch_leaves_nothing_behind(selftest):
    x, out = torch.arange(128), torch.zeros(1, dtype=torch.int64)
    with pytest.raises(selftest.Error, match="16 x waits at __shfl_sync"):
        selftest.shuffles_int64(x.data_ptr(), x.data_ptr(), 16, 0, 32)
    selftest.block_sum_int64(x.data_ptr(), out.data_ptr(), 128, 1)
    assert out.item() == x.sum().item()


@pytest.fixture(scope="session")
def beneath_sanitizers() -> Callable[[str], subprocess.CompletedProcess[str]]:
    """Runs a kernel by its name in a process with AddressSanitizer and UBSan."""
    try:
        library = build("planted", sanitized=True)
        runtimes = [sanitize.find_runtime(sanitize.find_compiler(), f"lib{name}.so") for name in ("asan", "ubsan")]
    except Unavailable as reason:
        pytest.skip(f"no sanitizers: {reason}")
    environment = os.environ | {
        "LD_PRELOAD": ":".join(runtimes),
        "ASAN_OPTIONS": f"{sanitize.OPTIONS}:detect_leaks=0:detect_stack_use_after_return=1",
        "UBSAN_OPTIONS": sanitize.OPTIONS,
        "PYTHONMALLOC": "malloc",  # Python's own memory has no ends that a sanitizer sees
    }
    program = [sys.executable, planted.__file__, str(library)]
    return lambda name: subprocess.run([*program, name], env=environment, capture_output=True, text=True)


@pytest.mark.parametrize(
    ("name", "told"),
    [
        ("reads_one_too_many", "heap-buffer-overflow"),
        ("reads_one_too_many_of_shared", "global-buffer-overflow|insufficient space"),
        ("reads_one_too_many_of_a_template", "global-buffer-overflow|insufficient space"),
        ("reads_one_too_many_of_dynamic", "heap-buffer-overflow"),
        ("load_of_four_that_is_not_aligned", "misaligned address"),
    ],
)
def test_access_out_of_bounds_is_seen(beneath_sanitizers, name, told):
    done = beneath_sanitizers(name)
    assert done.returncode != 0
    assert re.search(told, done.stderr)
    assert "planted.cuh:" in done.stderr
    assert done.stdout == ""


@pytest.mark.parametrize("name", ["missing_second_barrier", "divergent_shuffle", "two_barriers_for_one"])
def test_sanitizers_do_not_complain_of_fibers(beneath_sanitizers, name):
    done = beneath_sanitizers(name)
    assert (done.returncode, done.stderr) == (0, "")
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
