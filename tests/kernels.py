"""A plugin of pytest: nbval's kernels are forked from a process that has imported what most use.

To import torch, matplotlib and scikit-learn takes longer than what many notebooks do with them. On
Linux, each worker starts this file once, as a process that forks a kernel for every notebook;
elsewhere nbval starts its kernels as usual. A kernel has the environment, the folder, the arguments
and the `sys.path` that `python -m ipykernel_launcher` would give it.

However a run ends, nothing of it stays: workers end with the process that started them, the process
that forks kernels ends with its worker, and takes the kernel and all that it has started along.
"""

import ctypes
import gc
import json
import os
import select
import signal
import subprocess
import sys
from contextlib import suppress
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
PR_SET_PDEATHSIG = 1  # of Linux's prctl: the signal that a process gets when its parent ends


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
    """The process that forks a kernel for each line, and says its number, then its status."""
    pipes = {"stdin": subprocess.PIPE, "stdout": subprocess.PIPE, "bufsize": 0}
    return subprocess.Popen([sys.executable, __file__], **pipes, start_new_session=True)


def launch(command, cwd=None, env=None, **options):
    """Fork a kernel, in place of `jupyter_client.launcher.launch_kernel`."""
    server().stdin.write(json.dumps([command, cwd, env or dict(os.environ)]).encode() + b"\n")
    return Kernel(server())


def pytest_configure(config):
    import nbval.kernel

    if sys.platform != "linux":
        return
    nbval.kernel.start_new_kernel = mock.patch(LAUNCH, launch)(nbval.kernel.start_new_kernel)
    if hasattr(config, "workerinput"):  # of pytest-xdist
        end_with_parent()


def end_with_parent():
    """Let Linux kill this process when the one that started it has ended."""
    parent = os.getppid()
    ctypes.CDLL(None).prctl(PR_SET_PDEATHSIG, signal.SIGKILL)
    if os.getppid() != parent:  # it ended before
        os.kill(os.getpid(), signal.SIGKILL)


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
    # as where pandas is imported in a kernel: it looks for one then, and only then
    pandas.options.display.max_columns = 20
    gc.freeze()
    for line in sys.stdin:
        command, folder, environment = json.loads(line)
        kernel = os.fork()
        if not kernel:
            become_kernel(folder, environment)
            sys.argv = command[command.index("-m") + 1 :]
            return kernelapp.launch_new_instance()
        print(wait_for(kernel), flush=True)
    os._exit(0)  # libraries that were imported and never used would complain at a usual end


def wait_for(kernel):
    """The exit status of a kernel, which is killed with its children when nobody waits for it."""
    descriptor = os.pidfd_open(kernel)
    if sys.stdin in select.select([sys.stdin, descriptor], [], [])[0]:  # its end: no line is due
        kill_tree(kernel)
    os.close(descriptor)
    return os.waitstatus_to_exitcode(os.waitpid(kernel, 0)[1])


def kill_tree(pid):
    """Kill a process and all that it has started."""
    import psutil

    with suppress(psutil.NoSuchProcess):
        process = psutil.Process(pid)
        process.suspend()  # it starts nothing more
        for each in (*process.children(recursive=True), process):
            with suppress(psutil.NoSuchProcess):
                each.kill()


def become_kernel(folder, environment):
    """Give a forked process the session, streams, folder and environment of a kernel."""
    os.setsid()
    os.write(1, b"%d\n" % os.getpid())
    nowhere = os.open(os.devnull, os.O_RDWR)
    for stream in range(3):
        os.dup2(nowhere, stream)
    os.chdir(folder or ".")
    os.environ.clear()
    # a kernel ends itself when the process of this number is no longer its parent
    os.environ.update(environment, JPY_PARENT_PID=str(os.getppid()))


if __name__ == "__main__":
    serve()
else:
    # jsonschema, which nbval imports, would build a grammar of addresses for a second
    sys.modules["rfc3987_syntax"] = None
    import jsonschema  # noqa: F401

    del sys.modules["rfc3987_syntax"]
