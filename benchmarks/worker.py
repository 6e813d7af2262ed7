"""Does the task that comes on its standard input, one JSON object each way.

Threads and the allocator are set by the environment before Python starts. Whatever a
library prints goes to standard error.
"""

import json
import os
import sys

import torch

from benchmarks.tasks import TASKS


def main() -> None:
    answers = os.fdopen(os.dup(sys.stdout.fileno()), "w")
    os.dup2(sys.stderr.fileno(), sys.stdout.fileno())
    order = json.load(sys.stdin)
    torch.set_num_threads(order["threads"])
    settings = {"threads": order["threads"], "device": order["device"]}
    answer = TASKS[order["kind"]](**order["task"], **settings)
    with answers:
        json.dump(answer, answers)


if __name__ == "__main__":
    main()
