"""Processes that tests start, listen to and kill."""

import multiprocessing
import os
import signal
from contextlib import suppress

# Its server imports torch once, and its children start in milliseconds; it has no threads that a fork could break.
context = multiprocessing.get_context("forkserver")
context.set_forkserver_preload(["torch", "torch_geometric.nn", "plufg_fast.experiments.search", "optuna"])


class Victim:
    """A process that runs ``target(say, *args)``; what it says is heard here."""

    def __init__(self, target, *args):
        self.ear, mouth = context.Pipe(duplex=False)
        self.process = context.Process(target=_live, args=(target, mouth, *args))
        self.process.start()
        mouth.close()

    def hear(self):
        """The next thing said, or None from the dead."""
        try:
            return self.ear.recv()
        except EOFError:
            return None

    def kill(self):
        # One that has come to its end before is as dead.
        with suppress(ProcessLookupError):
            os.kill(self.process.pid, signal.SIGKILL)

    def end(self):
        """All that is left to hear, until the end; with the exit code."""
        words = []
        while (word := self.hear()) is not None:
            words.append(word)
        self.process.join()
        return words, self.process.exitcode


def _live(target, mouth, *args):
    import torch

    torch.set_num_threads(1)
    target(mouth.send, *args)


def write_records(say, path, name, count):
    """Append records and tell about each."""
    from plufg_fast.experiments.records import Records

    records = Records(path)
    for number in range(count):
        records.append(f"{name}-{number}", {"text": name * 30_000})
        say(f"{name}-{number}")


def claim_forever(say, path, key):
    """Claim a key and hold it."""
    import time

    from plufg_fast.experiments.records import Records

    with Records(path).claim(key) as mine:
        say(mine)
        time.sleep(600)


def train_runs(say, config, out, save_every):
    """Train, and tell about every epoch."""
    from plufg_fast.experiments.train import train

    def progress(run):
        return lambda epoch: say((run, epoch.number))

    train(config, out, progress, checkpoints=out / "networks", save_every=save_every)


def search_trials(say, config, space, out, options):
    """Search, and tell about every epoch."""
    from plufg_fast.experiments.search import search

    search(config, space, out, **options, progress=lambda step: say((step.trial, step.run, step.epoch.number)))


def search_finalists(say, trials, out, options):
    """Let finalists decide, and tell about every epoch."""
    from plufg_fast.experiments.search import confirm

    confirm(trials, out, **options, progress=lambda step: say((step.trial, step.run, step.epoch.number)))


def reproduce_and_wait(say, root, out):
    """Reproduce a small table, and stop in the middle of its first run until told by a file."""
    import time

    from plufg_fast.experiments import sweep
    from plufg_fast.experiments.reproduce import reproduce

    once = sweep.run_once

    def slow(*args, **options):
        say("begun")
        while not (out / "go on").exists():
            time.sleep(0.01)
        return once(*args, **options)

    sweep.run_once = slow
    reproduce("heterophilic", out, **TABLE, root=str(root), progress=lambda step: say(step.done))


def reproduce_table(say, root, out, jobs):
    """Reproduce a small table, and tell what is done after every run."""
    from plufg_fast.experiments.reproduce import reproduce

    reproduce("heterophilic", out, **TABLE, root=str(root), jobs=jobs, progress=lambda step: say(step.done))


TABLE = {
    "datasets": ["texas", "cornell"],
    "models": ["mlp", "pl-ufg1"],
    "ps": ["1.5", "learned"],
    "runs": 2,
    "epochs": 8,
    # Another process than that of the tests, with the presets of the package.
    "use_presets": False,
}


def end_of_a_worker(number):
    """Kill the process that is asked to do the third thing."""
    if number == 2:
        os.kill(os.getpid(), signal.SIGKILL)
    return number
