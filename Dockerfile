# gpureduce with JupyterLab and the notebooks.
#
#     docker build -t gpureduce . && docker run --rm -p 8888:8888 gpureduce
#     docker build -t gpureduce --build-arg CUDA=require . && docker run --rm --gpus all -p 8888:8888 gpureduce
#
# CUDA=require takes nvcc from NVIDIA's wheels, for all cards; CUDA_ARCHS="75" names some.
FROM debian:trixie-slim AS tools
RUN apt-get update \
    && apt-get install -y --no-install-recommends ca-certificates g++ gcc git python3-dev python3-venv \
    && rm -rf /var/lib/apt/lists/*
# The compilers stay: kernels of users are compiled while a program runs.

FROM tools
ARG CUDA=0
ARG CUDA_ARCHS=""
WORKDIR /tmp/gpureduce
COPY . .
RUN python3 -m venv /opt/gpureduce \
    && extras=notebooks$([ "$CUDA" = 0 ] || echo ,nvrtc) \
    && GPUREDUCE_CUDA=$CUDA GPUREDUCE_CUDA_ARCHS=$CUDA_ARCHS /opt/gpureduce/bin/pip install --no-cache-dir ".[$extras]" \
    && useradd --create-home learner \
    && cp -r notebooks /home/learner/notebooks \
    && chown -R learner: /home/learner/notebooks \
    && rm -rf /tmp/gpureduce
ENV PATH=/opt/gpureduce/bin:$PATH NVIDIA_VISIBLE_DEVICES=all NVIDIA_DRIVER_CAPABILITIES=compute,utility
USER learner
WORKDIR /home/learner
EXPOSE 8888
CMD ["jupyter", "lab", "--ip=0.0.0.0", "--no-browser", "notebooks"]
