"""The C++ grader of tests/grader, built as a small library and called from Python."""

import ctypes
import pathlib
import subprocess
import tempfile

ROOT = pathlib.Path(__file__).resolve().parents[2]
PROMPTS = ROOT / "tests" / "grader" / "prompts.txt"


class Grader:
    def __init__(self):
        self.folder = tempfile.TemporaryDirectory()
        library = pathlib.Path(self.folder.name) / "libgrade.so"
        sources = [ROOT / "tests/grader/grader.cpp", ROOT / "tests/grader/prompts.cpp",
                   pathlib.Path(__file__).with_name("grade_shim.cpp")]
        subprocess.run(["g++", "-std=c++20", "-O2", "-shared", "-fPIC", "-I", str(ROOT),
                        *map(str, sources), "-o", str(library)], check=True)
        self.library = ctypes.CDLL(str(library))

    def __call__(self, image, line):
        """(passed, reason) for a PIL picture and a line of prompts.txt."""
        reason = ctypes.create_string_buffer(256)
        pixels = image.convert("RGB").tobytes()
        passed = self.library.tenon_grade(pixels, image.width, image.height, line.encode(), reason, 256)
        if passed < 0:
            raise ValueError(reason.value.decode())
        return bool(passed), reason.value.decode()


def prompt_lines():
    return [s for s in PROMPTS.read_text().splitlines() if s and not s.startswith("#")]
