# Dependencies only: the repository is mounted when a training runs, so a code edit needs no build.
# A slim base is enough: the wheels of torch carry the CUDA runtime, the node brings the driver.
FROM python:3.11.13-slim-bookworm
COPY constraints.txt /tmp/constraints.txt
RUN pip install --no-cache-dir -c /tmp/constraints.txt torch pytorch-lightning numpy
