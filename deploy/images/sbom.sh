#!/bin/sh
# sbom.sh ROOT ROLE: what is in the root file system as one CycloneDX document, Debian's packages and Python's.
set -eu
root=$1 role=$2
target=$root/usr/share/sbom
cd "$(mktemp -d)"
version=$(/opt/tools/bin/python -c 'import tomllib; print(tomllib.load(open("/images/pyproject.toml", "rb"))["project"]["version"])')
serial=$(/opt/tools/bin/python -c 'import sys, uuid; print(uuid.uuid5(uuid.NAMESPACE_DNS, " ".join(sys.argv[1:])))' \
    cotenant "$role" "$version" "$SOURCE_DATE_EPOCH")
common="-t cdx --cdx-schema-version 1.6 --cdx-serialnumber $serial --distro-name cotenant-$role --distro-supplier cotenant"
common="$common --distro-version $version --timestamp $(date --utc --iso-8601=seconds --date "@$SOURCE_DATE_EPOCH")"

# cyclonedx-py asks an interpreter for its path: this one has the image's packages on it and no others.
printf '#!/bin/sh\nPYTHONPATH=%s exec /usr/bin/python3.11 "$@"\n' \
    "$root/usr/local/lib/python3.11/dist-packages" > interpreter
chmod +x interpreter
printf '[project]\nname = "cotenant-%s"\nversion = "%s"\n' "$role" "$version" > root.toml
/opt/tools/bin/cyclonedx-py environment -S --output-reproducible --sv 1.6 --pyproject root.toml -o python.cdx.json \
    ./interpreter
# shellcheck disable=SC2086
/opt/tools/bin/debsbom generate $common --distro-arch "$(dpkg --print-architecture)" -r "$root" -o debian
mkdir -p "$target"
# shellcheck disable=SC2086
/opt/tools/bin/debsbom merge $common --omit-roots -o "$target/cotenant" debian.cdx.json python.cdx.json
