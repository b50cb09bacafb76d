# shellcheck shell=sh
# What the hooks beside this file share. They read it; it is no hook itself.
#
# A hook that takes things out and puts them back sets THINGS, words without blanks, and defines
#   look THING      print "in" or "out"; fail if that cannot be told
#   take_out THING  let nothing new come to it
#   drain THING     fail while something is left in it, and say what; unless defined, nothing is
#   put_back THING  undo take_out
# and then calls run_phase. What was out before is left alone, then and afterwards. What is out for
# two events is put back after the second.

set -uf

link=${0##*/}
NAME=${link#"${link%%[!0-9]*}"} # 10-haproxy is haproxy
NAME=${NAME#-}
CONF=${FOREWARN_HOOKS_CONF:-/etc/forewarn/hooks}/$NAME.conf
STATE=${FOREWARN_HOOKS_STATE:-/var/lib/forewarn-agent/hooks}/$NAME

# one line, whatever others have said
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

# for functions: it fails, and that is why
because() {
  printf '%s\n' "$*" >&2
  return 1
}

# need VARIABLE: it has no default
need() {
  eval "[ -n \"\${$1:-}\" ]" || fail "set $1 in $CONF"
}

# only_in PHASE: for hooks that have nothing to put back
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

# Hooks of two events may run at once.
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
    # What has just booted may not answer yet.
    where=$(look "$thing") || not_yet "cannot tell yet whether $thing is in or out"
    [ "$where" = out ] || continue
    said=$(put_back "$thing" 2>&1) || not_yet "cannot put back $thing: $said"
  done
  rm "$STATE/taken"
  say "back:" "$taken"
}

# Before it is done, on disk, and with the last first: that is the order to put things back in.
remember() {
  touch "$STATE/taken"
  ! grep -qxF -e "$1" "$STATE/taken" || return 0
  { echo "$1" && cat "$STATE/taken"; } > "$STATE/taken.new" &&
    sync "$STATE/taken.new" &&
    mv "$STATE/taken.new" "$STATE/taken" &&
    sync "$STATE" # the new name too, or a power cut may bring back what was there before
}

# shellcheck source=/dev/null
[ ! -e "$CONF" ] || . "$CONF"
