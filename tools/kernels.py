"""Kernels for many pages: forked, where the system can, from one that is warm.

Importing torch, IPython and matplotlib takes longer than most pages do. A page notices
no difference: it has a process of its own, in its own folder, with its own environment.
"""

import json
import os
import subprocess
import sys
import threading
from itertools import count
from pathlib import Path
from tempfile import TemporaryDirectory

import psutil
from jupyter_client import AsyncKernelManager
from jupyter_client.connect import KernelConnectionInfo
from jupyter_client.provisioning import LocalProvisioner

WARM = Path(__file__).with_name("warm.py")


class Forked(psutil.Process):
    """A kernel that is no child of ours, with what jupyter_client asks of a Popen."""

    stdin = stdout = stderr = None

    def poll(self) -> int | None:
        return None if self.is_running() else 0


class Forks:
    """Makes kernels; `tools.warm` is started with the first and ended by `close`."""

    def __init__(self) -> None:
        self.lock, self.number = threading.Lock(), count()
        self.folder = TemporaryDirectory()  # of the files that they listen to
        self.server: subprocess.Popen | None = None

    def fork(self, arguments: list[str], cwd: str, env: dict[str, str]) -> Forked:
        asked = {"arguments": arguments, "cwd": cwd, "env": env}
        with self.lock:
            if not self.server:
                command, pipe = [sys.executable, str(WARM)], subprocess.PIPE
                self.server = subprocess.Popen(
                    command, stdin=pipe, stdout=pipe, text=True
                )
            print(json.dumps(asked), file=self.server.stdin, flush=True)
            return Forked(int(self.server.stdout.readline()))

    def manager(self) -> AsyncKernelManager:
        """Of a kernel that will start when it is asked to."""
        if not hasattr(os, "fork"):
            return AsyncKernelManager(kernel_name="python3")
        # By files: a free port may be somebody's before the kernel listens to it.
        made = AsyncKernelManager(kernel_name="python3", transport="ipc")
        made.ip = str(Path(self.folder.name) / str(next(self.number)))
        of = {"kernel_spec": made.kernel_spec, "parent": made}
        made.provisioner = Provisioner(self.fork, **of)
        return made

    def close(self) -> None:
        if self.server:
            with self.server as server:
                server.stdin.close()
        self.folder.cleanup()


class Provisioner(LocalProvisioner):
    """Has the warm process fork; all else is as for any kernel of this machine."""

    def __init__(self, fork, **traits):
        super().__init__(**traits)
        self.fork = fork

    async def launch_kernel(self, cmd: list[str], **asked) -> KernelConnectionInfo:
        self.cwd = asked["cwd"]
        arguments = cmd[cmd.index("ipykernel_launcher") + 1 :]
        self.process = self.fork(arguments, str(self.cwd), asked["env"])
        self.pid = self.pgid = self.process.pid
        return self.connection_info
