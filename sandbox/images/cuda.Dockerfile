# An image for targets on NVIDIA GPUs: PyTorch's own image with the CUDA toolkit, as it is.
#
# The base: PyTorch 2.10.0 for CUDA 12.8, "devel" for the toolkit's headers and a compiler. PyTorch's documentation
# names no tags; this one is what public Dockerfiles use. Never `latest`, which changes.
ARG BASE=pytorch/pytorch:2.10.0-cuda12.8-cudnn9-devel
FROM ${BASE}

# COMPILER  yes: install a C++ compiler, which Inductor and Triton need, if the base has none
#           no: take the base as it is
ARG BASE COMPILER=yes

USER 0
RUN set -e; \
    if [ "${COMPILER}" = yes ] && ! { command -v g++ && command -v gcc; } > /dev/null; then \
        apt-get update && apt-get install -y --no-install-recommends g++ && rm -rf /var/lib/apt/lists/*; \
    fi

ENV TORCHINDUCTOR_MAX_AUTOTUNE=0 \
    TORCHINDUCTOR_MAX_AUTOTUNE_POINTWISE=0 \
    TORCHINDUCTOR_MAX_AUTOTUNE_GEMM=0
LABEL org.opencontainers.image.title="Ratchet: targets on NVIDIA GPUs" \
      org.opencontainers.image.description="PyTorch for CUDA as a place for targets to run in" \
      org.opencontainers.image.base.name="${BASE}" \
      ratchet.image="cuda"
USER 65534:65534
