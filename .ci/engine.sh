# Make sure that a container engine answers and bubblewrap is there; ends the engine again when it started it.
# To be sourced. Needs root and Debian's packages where they are not installed already.

if ! command -v dockerd > /dev/null || ! command -v bwrap > /dev/null; then
    apt-get update -qq
    DEBIAN_FRONTEND=noninteractive apt-get install -y -qq docker.io bubblewrap > /dev/null
fi
if ! docker info > /dev/null 2>&1; then
    engine_log=$(mktemp)
    # without a network of its own: containers here have none, and a build machine may not let it make one
    dockerd --storage-driver=vfs --iptables=false --bridge=none > "$engine_log" 2>&1 &
    engine=$!
    trap 'kill "$engine" 2> /dev/null; wait "$engine" 2> /dev/null || true' EXIT
    for _ in $(seq 60); do
        docker info > /dev/null 2>&1 && break
        kill -0 "$engine" 2> /dev/null || break
        sleep 1
    done
    docker info > /dev/null 2>&1 || { echo "the container engine did not start:"; tail -20 "$engine_log"; exit 1; }
fi
