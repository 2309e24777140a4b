#!/bin/sh
# Install the named Debian packages when they are missing: with apt when root, else print the line to run.
# A name is the package's and its command's; where they differ it is COMMAND:PACKAGE.
set -eu
missing=""
for name in "$@"; do
    command -v "${name%%:*}" >/dev/null 2>&1 || missing="$missing ${name##*:}"
done
[ -z "$missing" ] && exit 0
if [ "$(id -u)" = 0 ] && command -v apt-get >/dev/null 2>&1; then
    echo "installing system packages:$missing"
    export DEBIAN_FRONTEND=noninteractive RUNLEVEL=1 # do not start the daemons that packages bring
    apt-get update -qq >/dev/null
    # shellcheck disable=SC2086
    apt-get install -y -qq --no-install-recommends $missing >/dev/null
else
    echo "these programs are missing:$missing" >&2
    echo "run:  sudo apt-get install --no-install-recommends$missing" >&2
    exit 1
fi
