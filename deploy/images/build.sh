#!/bin/sh
# build.sh [FOLDER]: build both images with buildah and write them as OCI archives; as root, without a daemon.
#
#   BASE=IMAGE         put the images together on this Debian 12 image; without it one is made by mmdebstrap
#   FRESH=1            use no cached layer: take Debian's updates and build everything again
#   SOURCE_DATE_EPOCH  the images' date in seconds; without it that of the last commit
#   PIP_CERT           certificate authorities for the package index, as pip itself takes it
set -eu
cd "$(dirname "$0")/../.."
cache=${XDG_CACHE_HOME:-$HOME/.cache}/cotenant/images
folder=${1:-$cache}
version=$(sed -n 's/^version = "\(.*\)"/\1/p' pyproject.toml)
SOURCE_DATE_EPOCH=${SOURCE_DATE_EPOCH:-$(git log -1 --format=%ct 2>/dev/null || echo 0)}
mkdir -p "$cache/run" "$folder"
exec 9> "$cache/lock"
flock 9 # one store, one build
store() { buildah --root "$cache/storage" --runroot "$cache/run" "$@"; }

if [ -z "${BASE:-}" ]; then
    BASE=localhost/cotenant-build:bookworm
    if [ -n "${FRESH:-}" ] || ! store inspect --type image "$BASE" > /dev/null 2>&1; then
        archive=$(mktemp --suffix .tar)
        trap 'rm -f "$archive"' EXIT
        mmdebstrap --quiet --variant=apt --include=binutils,ca-certificates,python3.11-venv bookworm "$archive"
        container=$(store from scratch)
        store add --quiet "$container" "$archive" / > /dev/null
        store commit --quiet --rm "$container" "$BASE" > /dev/null
    fi
fi
for role in control node; do
    name=cotenant/cotenant
    [ "$role" = control ] || name=cotenant/cotenant-node
    store build --isolation chroot --layers ${FRESH:+--no-cache} --omit-history --timestamp "$SOURCE_DATE_EPOCH" \
        ${PIP_CERT:+--volume "$PIP_CERT:/etc/ssl/certs/ca-certificates.crt:ro"} \
        --build-arg "BASE=$BASE" --build-arg "VERSION=$version" --build-arg "SOURCE_DATE_EPOCH=$SOURCE_DATE_EPOCH" \
        --build-arg "DEBIAN_SNAPSHOT=${DEBIAN_SNAPSHOT:-}" \
        --file deploy/images/Containerfile --target "$role" --tag "docker.io/$name:$version" .
    archive=$folder/${name#*/}.oci.tar
    rm -f "$archive.part"
    store push --quiet "docker.io/$name:$version" "oci-archive:$archive.part:docker.io/$name:$version"
    mv "$archive.part" "$archive"
    echo "docker.io/$name:$version $archive"
done
