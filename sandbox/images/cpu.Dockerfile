# An image for targets on a CPU: any base with a Python. It takes no network with COMPILER=no and without TORCH.
ARG BASE=python:3.12-slim-bookworm
FROM ${BASE}

# COMPILER       yes: install a C++ compiler, which Inductor needs, if the base has none; no: take the base as it is
# TORCH          which PyTorch to install, such as 2.13.0; empty: none, for a base that has one or a target that
#                requires one
# TORCH_INDEX    where that is taken from; empty: from where pip takes everything, and there the builds for Linux on
#                x86 bring CUDA along
# PIP_INDEX_URL  where pip takes everything from; empty: from where it always does
ARG BASE COMPILER=yes TORCH= TORCH_INDEX= PIP_INDEX_URL=

USER 0
RUN set -e; \
    if [ "${COMPILER}" = yes ] && ! { command -v g++ && command -v gcc; } > /dev/null; then \
        apt-get update && apt-get install -y --no-install-recommends g++ && rm -rf /var/lib/apt/lists/*; \
    fi; \
    if [ -n "${TORCH}" ]; then \
        PIP_BREAK_SYSTEM_PACKAGES=1 PIP_ROOT_USER_ACTION=ignore PIP_PROGRESS_BAR=off \
        python3 -m pip install --no-cache-dir --no-input --disable-pip-version-check \
            ${TORCH_INDEX:+--index-url "${TORCH_INDEX}"} "torch==${TORCH}"; \
    fi

LABEL org.opencontainers.image.title="Ratchet: targets on a CPU" \
      org.opencontainers.image.description="A Python as a place for targets to run in" \
      org.opencontainers.image.base.name="${BASE}" \
      ratchet.image="cpu"
USER 65534:65534
