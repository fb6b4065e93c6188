"""Finished runs, one JSON line each: what is written once is never lost and never done again.

Any number of processes may share a file. A process that is killed, at whatever point, leaves at most an unfinished
last line, which is ignored and cut off before the next one is written.
"""

from __future__ import annotations

import hashlib
import json
import os
import warnings
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from pathlib import Path
from typing import Any

from filelock import FileLock, Timeout


def key_of(identity: Mapping[str, Any]) -> str:
    """A short name of everything that decides the outcome of a run, whatever the order of its entries."""
    text = json.dumps(_plain(identity), sort_keys=True, allow_nan=False)
    return hashlib.sha256(text.encode()).hexdigest()[:20]


def _plain(value: Any) -> Any:
    """2 and 2.0 are the same setting."""
    if isinstance(value, Mapping):
        return {str(name): _plain(item) for name, item in value.items()}
    if isinstance(value, list | tuple):
        return [_plain(item) for item in value]
    return int(value) if isinstance(value, float) and value.is_integer() else value


class Records:
    """The finished runs in one file, by their keys (:func:`key_of`).

    Args:
        path: The file; it and its folder appear with the first run.
    """

    def __init__(self, path: str | Path) -> None:
        self.path = Path(path)
        self._seen: dict[str, dict[str, Any]] = {}
        self._offset = 0
        self._line = 0

    def all(self) -> dict[str, dict[str, Any]]:
        """Every finished run by its key, in the order of the file; of equal keys the first counts."""
        if not self.path.exists():
            return {}
        with self.path.open("rb") as file:
            file.seek(self._offset)
            for line in file:
                # Somebody is still writing it, or was killed there.
                if not line.endswith(b"\n"):
                    break
                self._offset += len(line)
                self._line += 1
                try:
                    entry = json.loads(line)
                    self._seen.setdefault(entry["key"], entry)
                except (ValueError, TypeError, KeyError):
                    warnings.warn(f"{self.path}, line {self._line}: no finished run, ignored", stacklevel=2)
        return self._seen

    def get(self, key: str) -> dict[str, Any] | None:
        """The finished run of that key, if there is one."""
        return self.all().get(key)

    def append(self, key: str, entry: Mapping[str, Any]) -> None:
        """Add a finished run, ``entry`` without its key; it is on the disk when this returns.

        A key that is there already is left as it is: whoever was first has been read by others.
        """
        line = json.dumps({"key": key, **entry}, allow_nan=False) + "\n"
        self.path.parent.mkdir(parents=True, exist_ok=True)
        with lock_of(self.path):
            mend(self.path)
            if self.get(key) is None:
                _append(self.path, line.encode())

    @contextmanager
    def claim(self, key: str, wait: bool = False) -> Iterator[bool]:
        """Whether the run of that key is the caller's for the ``with`` block: nobody else is at it.

        Ask what is finished after that, not before. A claim ends with its process, killed or not; ``wait`` waits
        for the claim of another.
        """
        self.path.parent.mkdir(parents=True, exist_ok=True)
        lock = FileLock(self.path.with_name(f"{self.path.name}.{key}.claim"))
        try:
            lock.acquire(timeout=-1 if wait else 0, poll_interval=0.2)
        except Timeout:
            yield False
            return
        try:
            yield True
        finally:
            # While it is held: who waits for this file finds that it has no name any more and takes a new one.
            Path(lock.lock_file).unlink(missing_ok=True)
            lock.release()


def lock_of(path: Path) -> FileLock:
    """The lock beside a file that processes share; a killed process holds none."""
    return FileLock(path.with_name(path.name + ".lock"))


def mend(path: Path) -> None:
    """Cut off the unfinished last line that a killed process left; call it with the lock of the file."""
    if not path.exists():
        return
    with path.open("r+b") as file:
        size = end = file.seek(0, os.SEEK_END)
        while end > 0:
            start = max(0, end - 65536)
            file.seek(start)
            newline = file.read(end - start).rfind(b"\n")
            if newline >= 0:
                end = start + newline + 1
                break
            end = start
        if end < size:
            file.truncate(end)


def _append(path: Path, line: bytes) -> None:
    file = os.open(path, os.O_WRONLY | os.O_APPEND | os.O_CREAT, 0o666)
    try:
        # One write: another process sees all of the line or an unfinished one, never two that are mixed.
        if os.write(file, line) != len(line):
            raise OSError(f"{path}: could not write a whole line; is the disk full?")
        os.fsync(file)
    finally:
        os.close(file)
