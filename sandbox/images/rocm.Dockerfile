# An image for targets on AMD GPUs: AMD's own PyTorch for ROCm, as it is, with room for aiter.
#
# The base: ROCm 7.2.4, PyTorch 2.10.0 and AMD's Triton, in the image that aiter is tested in (ROCm/aiter pull request
# 4744, "ci: pin PyTorch test image"; its release workflow, .github/workflows/aiter-release.yaml, builds its wheels on
# rocm/pytorch:rocm7.2_ubuntu24.04_py3.12_pytorch_release_2.9.1, which will do as well). Never `latest`, which changes.
ARG BASE=rocm/pytorch:rocm7.2.4_ubuntu24.04_py3.12_pytorch_release_2.10.0
FROM ${BASE}

# COMPILER        yes: install a C++ compiler, which Inductor and Triton need, if the base has none
#                 no: take the base as it is
# AITER           which aiter to build and install, a tag or a branch such as v0.1.12.post1; empty: none. That runs
#                 aiter's own build, takes a network, and is checked to leave PyTorch and Triton as they are.
# AITER_SOURCE    the repository that it is taken from
# AITER_PREBUILD  0: its kernels are compiled where they are first called, into the folder AITER_JIT_DIR
#                 1: they are compiled now, which takes long
# AITER_GPUS      for which GPUs
ARG BASE COMPILER=yes AITER= AITER_SOURCE=https://github.com/ROCm/aiter.git AITER_PREBUILD=0 AITER_GPUS=gfx942;gfx950

# A command in the sandbox has none of the image's variables: libraries have to be found without LD_LIBRARY_PATH.
USER 0
COPY packages.py /opt/ratchet/
RUN set -e; \
    if [ "${COMPILER}" = yes ] && ! { command -v g++ && command -v gcc; } > /dev/null; then \
        apt-get update && apt-get install -y --no-install-recommends g++ && rm -rf /var/lib/apt/lists/*; \
    fi; \
    for folder in /opt/rocm/lib /opt/rocm/lib64; do \
        if [ -d "$folder" ]; then echo "$folder" >> /etc/ld.so.conf.d/ratchet-rocm.conf; fi; \
    done; \
    if command -v ldconfig > /dev/null; then ldconfig; fi; \
    mkdir -p /opt/aiter
RUN set -e; \
    if [ -n "${AITER}" ]; then \
        python3 -I /opt/ratchet/packages.py record; \
        git clone --recursive --depth 1 --shallow-submodules --branch "${AITER}" "${AITER_SOURCE}" /opt/aiter; \
        cd /opt/aiter; \
        export AITER_USE_SYSTEM_TRITON=1 PREBUILD_KERNELS="${AITER_PREBUILD}" GPU_ARCHS="${AITER_GPUS}" \
               PIP_CONSTRAINT=/opt/ratchet/base.txt PIP_NO_CACHE_DIR=1 PIP_BREAK_SYSTEM_PACKAGES=1 \
               PIP_ROOT_USER_ACTION=ignore; \
        python3 -m pip install -r requirements.txt ninja "setuptools_scm<10"; \
        python3 -m pip install --no-build-isolation --editable .; \
        python3 -I /opt/ratchet/packages.py check; \
    fi

# Some images for ROCm turn Inductor's search for kernels on for everybody; then `torch.compile` means something else
# than it says, and may not come to an end. A sandbox gives its commands no variable of the image anyway.
ENV TORCHINDUCTOR_MAX_AUTOTUNE=0 \
    TORCHINDUCTOR_MAX_AUTOTUNE_POINTWISE=0 \
    TORCHINDUCTOR_MAX_AUTOTUNE_GEMM=0 \
    TORCHINDUCTOR_COORDINATE_DESCENT_TUNING=0 \
    TORCHINDUCTOR_CUDAGRAPHS=0 \
    TORCHINDUCTOR_CPP_WRAPPER=0 \
    TORCHINDUCTOR_FREEZING=0
LABEL org.opencontainers.image.title="Ratchet: targets on AMD GPUs" \
      org.opencontainers.image.description="AMD's PyTorch for ROCm as a place for targets to run in" \
      org.opencontainers.image.base.name="${BASE}" \
      ratchet.image="rocm"
USER 65534:65534
