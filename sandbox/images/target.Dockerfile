# An image for one target: one of the others, and what the target requires.
#
# Of the target only its requirements are here, in two files of pip's format: none of its code. Installing packages is
# another matter: their build scripts run, as root in the container that builds this image, and with its network.
ARG BASE
FROM ${BASE}

# PIP_INDEX_URL  where pip takes packages from; empty: from where it always does
ARG BASE PIP_INDEX_URL=

USER 0
COPY packages.py requirements.txt constraints.txt /opt/ratchet/
RUN python3 -I /opt/ratchet/packages.py install

LABEL org.opencontainers.image.title="Ratchet: one target" \
      org.opencontainers.image.description="What one target requires, on top of an image for targets" \
      org.opencontainers.image.base.name="${BASE}" \
      ratchet.image="target"
USER 65534:65534
