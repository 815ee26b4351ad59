"""Runs the tool `media` (tests/tools/media.c) on files and arrays."""

import json
import pathlib
import subprocess

import numpy as np


class Tool:
    def __init__(self, churon, folder):
        self.path, self.folder = pathlib.Path(churon).parent / "tools" / "media", pathlib.Path(folder)

    def run(self, job, *words):
        return subprocess.run([self.path, job, *map(str, words)], capture_output=True, text=True, timeout=60)

    def _options(self, more):
        return [f"{k}={','.join(map(str, v)) if isinstance(v, (list, tuple)) else v}" for k, v in more.items()]

    def file(self, job, data, **more):
        """(info, array) of a file's bytes; raises Refused."""
        path, out = self.folder / "in.bin", self.folder / "out.npy"
        path.write_bytes(data)
        out.unlink(missing_ok=True)
        done = self.run(job, path, out, *self._options(more))
        if done.returncode != 0:
            raise Refused(done.returncode, done.stderr.strip())
        return json.loads(done.stdout), np.load(out) if out.exists() else None

    def array(self, job, x, **more):
        path, out = self.folder / "in.npy", self.folder / "out.npy"
        np.save(path, x)
        done = self.run(job, path, out, *self._options(more))
        if done.returncode != 0:
            raise Refused(done.returncode, done.stderr.strip())
        return np.load(out)


class Refused(Exception):
    def __init__(self, code, text):
        super().__init__(text)
        self.code, self.text = code, text
