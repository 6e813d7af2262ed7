"""Does the tasks that come on its standard input, one JSON line each way.

Threads and the allocator are set by the environment before Python starts; so each
setting has a process of its own. Whatever a library prints goes to standard error.
"""

import json
import os
import sys

import torch

from benchmarks.tasks import TASKS


def main() -> None:
    answers = os.fdopen(os.dup(sys.stdout.fileno()), "w", buffering=1)
    os.dup2(sys.stderr.fileno(), sys.stdout.fileno())
    for line in sys.stdin:
        order = json.loads(line)
        torch.set_num_threads(order["threads"])
        settings = {"threads": order["threads"], "device": order["device"]}
        answer = TASKS[order["kind"]](**order["task"], **settings)
        print(json.dumps(answer), file=answers)


if __name__ == "__main__":
    main()
