# shellcheck shell=sh
# Functions that the hooks in this folder share. This file is not a hook itself.
#
# A hook that takes things out of use and puts them back sets THINGS, a list of words, and defines
#   look THING      print "in" or "out"; fail if the state is unknown
#   take_out THING  stop new work for it
#   drain THING     fail while it still has work, and print which; optional
#   put_back THING  undo take_out
# Then it calls run_phase. Things that were already out stay out. Things that are out for two events
# are put back after the second.

set -uf

link=${0##*/}
NAME=${link#"${link%%[!0-9]*}"} # 10-haproxy is haproxy
NAME=${NAME#-}
CONF=${FOREWARN_HOOKS_CONF:-/etc/forewarn/hooks}/$NAME.conf
STATE=${FOREWARN_HOOKS_STATE:-/var/lib/forewarn-agent/hooks}/$NAME

# say MESSAGE: print it in one line
say() {
  printf '%s\n' "$(printf '%s: %s' "$NAME" "$*" | tr -s '[:space:]' ' ')"
}

fail() {
  say "$*"
  exit 1
}

not_yet() {
  say "$*"
  exit 75
}

# because REASON: print it, and make the calling function fail
because() {
  printf '%s\n' "$*" >&2
  return 1
}

# need VARIABLE: fail if a setting without a default is missing
need() {
  eval "[ -n \"\${$1:-}\" ]" || fail "set $1 in $CONF"
}

# only_in PHASE: exit in all other phases; for hooks that have nothing to put back
only_in() {
  [ "${EVENT_PHASE:-}" = "$1" ] || {
    say "nothing to do in phase ${EVENT_PHASE:-}"
    exit 0
  }
}

drain() { :; }

run_phase() {
  case ${EVENT_PHASE:-} in
    scheduled)
      lock
      take_all_out
      ;;
    recovered | canceled)
      lock
      put_all_back
      ;;
    *) say "nothing to do in phase ${EVENT_PHASE:-}" ;;
  esac
}

# Hooks of two events may run at the same time.
lock() {
  case ${EVENT_ID:-} in
    '' | .* | *[!A-Za-z0-9._-]*) fail "EVENT_ID is missing, or cannot be the name of a file" ;;
  esac
  mkdir -p "$STATE/events" || fail "cannot write to $STATE"
  exec 9> "$STATE/lock"
  flock 9 || fail "cannot lock $STATE/lock"
}

take_all_out() {
  { : > "$STATE/events/$EVENT_ID" && sync "$STATE/events"; } || fail "cannot write to $STATE"
  for thing in $THINGS; do
    where=$(look "$thing") || fail "cannot tell whether $thing is in or out"
    [ "$where" = in ] || continue
    remember "$thing" || fail "cannot write to $STATE"
    said=$(take_out "$thing" 2>&1) || fail "cannot take out $thing: $said"
  done
  left=''
  for thing in $THINGS; do
    said=$(drain "$thing" 2>&1) || left="$left, $thing: $said"
  done
  [ -z "$left" ] || not_yet "not yet: ${left#, }"
  say "out: $THINGS"
}

put_all_back() {
  rm -f "$STATE/events/$EVENT_ID"
  others=$(ls "$STATE/events")
  [ -z "$others" ] || {
    say "stays out for $others (if that is over, remove it from $STATE/events)"
    return
  }
  [ -s "$STATE/taken" ] || {
    say "nothing to put back"
    return
  }
  taken=$(cat "$STATE/taken")
  for thing in $taken; do
    # A service that has just booted may not answer yet.
    where=$(look "$thing") || not_yet "cannot tell yet whether $thing is in or out"
    [ "$where" = out ] || continue
    said=$(put_back "$thing" 2>&1) || not_yet "cannot put back $thing: $said"
  done
  rm "$STATE/taken"
  say "back:" "$taken"
}

# remember THING: record it on disk before it is taken out. The last thing comes first, as it is put back first.
remember() {
  touch "$STATE/taken"
  ! grep -qxF -e "$1" "$STATE/taken" || return 0
  { echo "$1" && cat "$STATE/taken"; } > "$STATE/taken.new" &&
    sync "$STATE/taken.new" &&
    mv "$STATE/taken.new" "$STATE/taken" &&
    sync "$STATE" # also the renaming, or a power cut may restore the old file
}

# shellcheck source=/dev/null
[ ! -e "$CONF" ] || . "$CONF"
