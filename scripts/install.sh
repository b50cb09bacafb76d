#!/bin/sh
# install.sh PROGRAM WORDS...: run pip or uv, and replace their many lines about retries with one sentence if they cannot
# reach the package index. Any other error stays as it is.
set -u
said=$("$@" 2>&1) && status=0 || status=$?
case $said in
*SSLError* | *"invalid peer certificate"* | *"DO NOT MATCH THE HASHES"*) ;;
*"connection broken by"*"(from versions: none)"* | *"Max retries exceeded"* | *"client error (Connect)"* | *"operation timed out"*)
  [ "$status" = 0 ] || said="The packages of forewarn cannot be installed, because the package index cannot be reached: \
connect this machine to it, or set PIP_INDEX_URL and UV_DEFAULT_INDEX to one that it can reach, and run make again."
  ;;
esac
[ -z "$said" ] || printf '%s\n' "$said" >&2
exit "$status"
