#!/bin/sh
# sources.sh [DATE]: read the package lists, those of a date of snapshot.debian.org when one is named.
set -eu
if [ -n "${1:-}" ]; then
    rm -f /etc/apt/sources.list.d/*
    key="check-valid-until=no signed-by=/usr/share/keyrings/debian-archive-keyring.gpg"
    archive=http://snapshot.debian.org/archive
    {
        echo "deb [$key] $archive/debian/$1 bookworm main"
        echo "deb [$key] $archive/debian/$1 bookworm-updates main"
        echo "deb [$key] $archive/debian-security/$1 bookworm-security main"
    } > /etc/apt/sources.list
fi
apt-get update
