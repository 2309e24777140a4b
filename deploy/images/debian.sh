#!/bin/sh
# debian.sh ROOT PACKAGE...: unpack Debian packages into a folder, without their scripts, manuals and translations.
# Licences stay, and dpkg's list of what is installed, which scanners and the SBOM read.
set -eu
root=$1
shift
mkdir -p "$root/var/lib/dpkg"
for name in bin sbin lib lib64; do # Debian's merged /usr, which packages take for granted
    mkdir -p "$root/usr/$name"
    ln -sfn "usr/$name" "$root/$name"
done
folder=$(mktemp -d)
chmod 777 "$folder" # apt downloads as its own user
cd "$folder"
apt-get download --quiet "$@"
for package in *.deb; do
    dpkg-deb --fsys-tarfile "$package" | tar -x -C "$root" --keep-directory-symlink \
        --exclude './usr/share/man/*' --exclude './usr/share/locale/*' --exclude './usr/share/info/*' \
        --exclude './usr/share/lintian/*' --exclude './usr/share/bash-completion/*' --exclude './usr/share/doc/*/*.gz' \
        --exclude './usr/share/doc/*/examples/*' --exclude './usr/share/zoneinfo/right/*' \
        --exclude './usr/lib/*/gconv/*' --exclude './usr/lib/python3.11/pydoc_data/*' --exclude './usr/lib/python3.11/lib2to3/*'
    dpkg-deb --field "$package" | sed '1a Status: install ok installed' >> "$root/var/lib/dpkg/status"
    echo >> "$root/var/lib/dpkg/status"
done
rm -rf "$folder"
