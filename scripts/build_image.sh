#!/bin/sh
# Build localhost/forewarn. The argument names its base image. Without one it is that of the Containerfile, or, if that
# cannot be pulled, localhost/forewarn-base, which is made once.
set -eu
cd "$(dirname "$0")/.."
export BUILDAH_ISOLATION="${BUILDAH_ISOLATION:-chroot}"

base=${1:-$(sed -n 's/^ARG BASE=//p' Containerfile)}
if [ $# = 0 ] && ! buildah pull --quiet "$base" > /dev/null 2>&1; then
  echo "$base cannot be pulled; the base image is made of Debian packages instead."
  base=localhost/forewarn-base
  buildah inspect --type image "$base" > /dev/null 2>&1 || sh scripts/make_base.sh
fi
set -- --build-arg "BASE=$base" --build-arg "FOREWARN_COMMIT=$(git rev-parse --short=8 HEAD 2>/dev/null || true)"
[ -z "${PIP_INDEX_URL:-}" ] || set -- "$@" --build-arg PIP_INDEX_URL
[ -z "${PIP_CERT:-}" ] || set -- "$@" --volume "$PIP_CERT:/run/pip.pem:ro" --build-arg PIP_CERT=/run/pip.pem
# Docker's format, because OCI's has no health check.
buildah build --quiet --layers --format docker "$@" --tag localhost/forewarn . > /dev/null
echo "localhost/forewarn is built on $base: $(buildah images --format '{{.Size}}' localhost/forewarn)"
