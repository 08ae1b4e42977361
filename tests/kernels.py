"""A plugin of pytest: nbval's kernels are forked from one process that has imported what most notebooks import.

To import torch, matplotlib and scikit-learn takes longer than what many notebooks do with them. On Linux, each worker starts
this file once, as a process that forks a kernel for every notebook; elsewhere nbval starts its kernels as usual. A kernel
has the environment, the folder, the arguments and the `sys.path` that `python -m ipykernel_launcher` would give it.
"""

import gc
import json
import os
import select
import subprocess
import sys
from functools import cache
from importlib import import_module
from unittest import mock

PRELOADED = (
    "ipykernel.kernelapp",
    "pandas",
    "matplotlib.pyplot",
    "sklearn.datasets",
    "torch._dynamo",
    "torchvision",
)
LAUNCH = "jupyter_client.provisioning.local_provisioner.launch_kernel"


class Kernel:
    """A forked kernel, with what jupyter_client uses of `subprocess.Popen`."""

    stdin = stdout = stderr = returncode = None

    def __init__(self, server):
        self.server, self.pid = server, int(server.stdout.readline())

    def poll(self, seconds=0):
        if self.returncode is None and select.select([self.server.stdout], [], [], seconds)[0]:
            self.returncode = int(self.server.stdout.readline())
        return self.returncode

    def wait(self):
        return self.poll(seconds=None)

    def send_signal(self, number):
        os.kill(self.pid, number)


@cache
def server():
    """The process from which kernels are forked: a line to it starts one, its lines are process number and exit status."""
    pipes = {"stdin": subprocess.PIPE, "stdout": subprocess.PIPE, "bufsize": 0}
    return subprocess.Popen([sys.executable, __file__], **pipes, start_new_session=True)


def launch(command, cwd=None, env=None, **options):
    """Fork a kernel, in place of `jupyter_client.launcher.launch_kernel`."""
    server().stdin.write(json.dumps([command, cwd, env or dict(os.environ)]).encode() + b"\n")
    return Kernel(server())


def pytest_configure():
    import nbval.kernel

    start = nbval.kernel.start_new_kernel
    if sys.platform == "linux":
        nbval.kernel.start_new_kernel = mock.patch(LAUNCH, launch)(start)


def pytest_unconfigure():
    """End the process; the next notebook would start it again."""
    if server.cache_info().currsize:
        with server() as process:
            process.stdin.close()
        server.cache_clear()


def serve():
    """Fork a kernel for each line and say when it has ended; one at a time, as nbval runs them."""
    del sys.path[0]  # the folder of this file
    kernelapp, pandas, *_ = map(import_module, PRELOADED)
    pandas.options.display.max_columns = (
        20  # as where pandas is imported in a kernel: it looks for one then, and only then
    )
    gc.freeze()
    for line in sys.stdin:
        command, folder, environment = json.loads(line)
        if not (kernel := os.fork()):
            become_kernel(folder, environment)
            sys.argv = command[command.index("-m") + 1 :]
            return kernelapp.launch_new_instance()
        print(os.waitstatus_to_exitcode(os.waitpid(kernel, 0)[1]), flush=True)
    os._exit(
        0
    )  # libraries that were imported and never used have nothing to clear up, and complain of it


def become_kernel(folder, environment):
    """Give a forked process the session, streams, folder and environment of a kernel."""
    os.setsid()
    os.write(1, b"%d\n" % os.getpid())
    nowhere = os.open(os.devnull, os.O_RDWR)
    for stream in range(3):
        os.dup2(nowhere, stream)
    os.chdir(folder or ".")
    os.environ.clear()
    os.environ.update(
        environment, JPY_PARENT_PID=str(os.getppid())
    )  # a kernel ends itself when this process is gone


if __name__ == "__main__":
    serve()
else:  # jsonschema, which nbval imports, would build a grammar of addresses for a second; notebooks are checked without it
    sys.modules["rfc3987_syntax"] = None
    import jsonschema  # noqa: F401

    del sys.modules["rfc3987_syntax"]
