"""install.py, in a copy of the wheel that is thrown away.

usage: check_install.py PLUGIN    libplugin_TCPX.so
"""

import os
import pathlib
import shutil
import subprocess
import sys
import tempfile
import unittest

from agents import wheel

PLUGIN = pathlib.Path(sys.argv[1])
SCRIPT = pathlib.Path(wheel.__file__).with_name("install.py")


def link(source, target):
    try:
        os.link(source, target)
    except OSError:  # another file system
        shutil.copy2(source, target)


class Install(unittest.TestCase):
    def setUp(self):
        folder = tempfile.TemporaryDirectory()
        self.addCleanup(folder.cleanup)
        self.site = pathlib.Path(folder.name)
        for part in (wheel.package(), *wheel.libraries()):
            shutil.copytree(part, self.site / part.name, copy_function=link, ignore=shutil.ignore_patterns("libplugin_TCPX*"))
        self.target = self.site / wheel.plugins().parent.name / "plugins" / "libplugin_TCPX.so"

    def run_script(self, *arguments, code=0, options=(), **environment):
        """Its output."""
        environment = {**os.environ, "PYTHONPATH": str(self.site), **environment}
        environment = {name: value for name, value in environment.items() if value}
        run = subprocess.run(
            [sys.executable, *options, SCRIPT, *map(str, arguments)], env=environment, capture_output=True, text=True, check=False
        )
        self.assertEqual(run.returncode, code, run.stdout + run.stderr)
        self.assertNotIn("Traceback", run.stderr if code == 0 or not arguments else "")
        return run.stdout + run.stderr

    def install(self, **how):
        return self.run_script("--plugin", PLUGIN, **how)

    def test_it_comes_and_goes_and_twice_is_once(self):
        self.assertIn("cannot make", self.run_script("--check", code=1, NIXL_PLUGIN_DIR=""))
        said = self.install()
        self.assertIn(f"Copied {PLUGIN} to {self.target}", said)
        self.assertIn("made the back-end TCPX. It lists: ", said)
        self.assertRegex(said, r"lists:.* POSIX.* TCPX")
        self.assertIn("NIXL_PLUGIN_DIR is set", said)  # in_wheel.sh has done that
        self.assertIn("is there already", self.install())
        self.assertIn("made the back-end TCPX", self.run_script("--check", NIXL_PLUGIN_DIR=""))
        self.assertIn(f"Removed {self.target}", self.run_script("--remove"))
        self.assertIn("is not there", self.run_script("--remove"))
        self.assertFalse(self.target.exists())
        self.assertEqual(list(self.target.parent.glob("*.part")), [])

    def test_another_build_takes_the_place(self):
        self.install()
        self.target.write_bytes(self.target.read_bytes() + b"older")
        self.assertIn("Copied", self.install())
        self.assertEqual(self.target.read_bytes(), PLUGIN.read_bytes())

    def test_files_that_do_not_fit(self):
        wrong = self.site / "wrong.so"
        other = bytearray(PLUGIN.read_bytes())
        other[18] ^= 62 ^ 183
        for content, said in ((b"", "is no shared library"), (b"hello" * 100, "is no shared library"), (bytes(other), "the wheel is for")):
            wrong.write_bytes(content)
            self.assertIn(said, self.run_script("--plugin", wrong, code=1))
            self.assertFalse(self.target.exists())
        self.assertIn("is no file", self.run_script("--plugin", self.site / "none.so", code=1))

    def test_a_library_that_does_not_load_is_taken_away_again(self):
        broken = self.site / "broken.so"
        broken.write_bytes(PLUGIN.read_bytes()[:4096])
        said = self.run_script("--plugin", broken, code=1)
        self.assertIn("cannot make the back-end", said)
        self.assertFalse(self.target.exists())

    def test_a_folder_that_cannot_be_written(self):
        self.target.with_suffix(".part").mkdir()  # stops root too
        self.assertIn("cannot be written: ", self.install(code=1))
        self.assertFalse(self.target.exists())

    def test_no_wheel(self):
        self.assertIn("has no NIXL wheel: pip install nixl", self.install(code=1, options=("-S",), PYTHONPATH=""))


unittest.main(argv=sys.argv[:1])
