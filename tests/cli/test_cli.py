"""Commands as programs: a word where they are interrupted."""

import subprocess
import sys

STOP = """
import runpy
import sys


class Stop:
    def find_spec(self, name, *rest):
        if name == "vit_helpers.cli":
            raise KeyboardInterrupt


sys.meta_path.insert(0, Stop())
runpy.run_module("vit_helpers", run_name="__main__")
"""


def test_ctrl_c_before_a_command_has_begun_is_one_word():
    done = subprocess.run([sys.executable, "-c", STOP], capture_output=True, text=True)
    assert (done.returncode, done.stdout, done.stderr) == (130, "", "\nstopped\n")
