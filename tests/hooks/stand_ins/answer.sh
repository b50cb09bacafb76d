# shellcheck shell=sh
# What the stand-ins share. $STAND_IN is a folder: `calls` is what they were called with, one line
# each; `out` is there while the thing is taken out, `busy` while something is left in it, `broken`
# while nobody answers, `hold` while nobody answers yet.
echo "${0##*/} $*" >> "$STAND_IN/calls"
while [ -e "$STAND_IN/hold" ]; do sleep 0.05; done
if [ -e "$STAND_IN/broken" ]; then
  echo "nobody answers" >&2
  exit 1
fi

is() { [ -e "$STAND_IN/$1" ]; }

now_out() { : > "$STAND_IN/out"; }

now_in() { rm -f "$STAND_IN/out"; }
