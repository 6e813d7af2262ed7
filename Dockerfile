# The grader in a container: for a Mac or Windows what Linux has, for Linux one more wall.
# In the commands below podman may stand for docker.
#
# Build it in the clone. On an x86-64 machine, give pip the index that has torch without
# CUDA (the address under "CPU" where PyTorch says how it is installed); without it
# everything works, with gigabytes of CUDA libraries that nothing uses.
#
#   docker build -t mha-grade --build-arg PIP="--extra-index-url ADDRESS" .
#
# Run it in the folder with the submissions, which alone it sees:
#
#   docker run --rm --network none --read-only --tmpfs /tmp --memory 4g --memory-swap 4g --pids-limit 256 --cap-drop ALL --cap-add SYS_ADMIN --cap-add SETUID --cap-add SETGID --cap-add KILL --cap-add DAC_OVERRIDE --security-opt no-new-privileges -v "$PWD":/course -w /course mha-grade submissions -a a1 -o a1.csv
#
# What the capabilities are for. All of them are dropped before a submission runs.
#   SYS_ADMIN      namespaces for each submission. Docker's default seccomp profile allows
#                  unshare and mount with it alone, and refuses user namespaces without.
#   SETUID SETGID  a user of its own for each submission
#   KILL           to end a submission, which is another user's process
#   DAC_OVERRIDE   to read the submissions and write the marks, whoever owns the folder

FROM python:3.11-slim
ARG PIP=""
ENV HOME=/tmp PYTHONDONTWRITEBYTECODE=1 PYTHONUNBUFFERED=1
WORKDIR /opt/mha-book
COPY requirements.txt constraints.txt pyproject.toml setup.py README.md LICENSE ./
RUN grep -E "^(torch|numpy|matplotlib|pyyaml|tqdm)==" requirements.txt > /tmp/grade.txt \
    && pip install --no-cache-dir $PIP -c constraints.txt -r /tmp/grade.txt setuptools \
    && rm /tmp/grade.txt
COPY mha_lib mha_lib
COPY book/assignments book/assignments
# The answers are root's, and a submission never runs as root.
RUN pip install --no-index --no-deps --no-build-isolation -e . && chmod -R go= /opt/mha-book
ENTRYPOINT ["mha-grade"]
