# Make sure that Chromium is there, for the tests of pages. To be sourced. Needs root and Debian's packages where it is not.

if ! command -v chromium > /dev/null; then
    apt-get update -qq
    DEBIAN_FRONTEND=noninteractive apt-get install -y -qq --no-install-recommends chromium > /dev/null
fi
