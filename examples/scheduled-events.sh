#!/bin/sh
# Follow scheduled events with curl and jq.
#
#   sh scheduled-events.sh [--once] [COMMAND…]
#
# COMMAND is run before an event that names this machine is approved; it finds EVENT_ID and
# EVENT_TYPE in its environment. With --once, end when the first such event is gone.
set -u
metadata=${FOREWARN_METADATA:-http://169.254.169.254}
events="$metadata/metadata/scheduledevents?api-version=2020-07-01"
name="$metadata/metadata/instance/compute/name?api-version=2021-02-01&format=text"

once=no
[ "${1-}" != --once ] || { once=yes; shift; }
tab=$(printf '\t')
dir=$(mktemp -d) || exit
trap 'rm -rf "$dir"' EXIT
trap 'exit 130' INT
trap 'exit 143' TERM
touch "$dir/known" "$dir/to_approve"

# The server knows us by our connection, so a proxy cannot ask in our place. --fail makes 404, 410,
# 429 and 5xx an error like a reset or a time-out: complain, and ask again a second later.
ask() { curl --noproxy '*' --silent --show-error --fail --max-time 10 -H Metadata:true "$@"; }

# Resources has this name, which need not be the host name.
until me=$(ask "$name") && [ -n "$me" ]; do sleep 1; done
echo "I am $me"

is_mine() { case ",$1," in *",$me,"*) ;; *) false ;; esac; }

# Write one line for each event, if there is something new to know. An empty body is no document.
poll() {
  ask -H "If-None-Match: $etag" -D "$dir/headers" -o "$dir/body" "$events" || { etag=none; return 1; }
  etag=$(sed -n 's/^[Ee][Tt]ag: *//p' "$dir/headers" | tr -d '\r')
  [ -s "$dir/body" ] || return 1
  jq -r '.Events | unique_by(.EventId)[] |
    [.EventId, .EventStatus, .EventType, (.Resources | join(",")), .NotBefore] | @tsv' \
    "$dir/body" > "$dir/now" || { etag=none; return 1; }
}

etag=none
while :; do
  rm -f "$dir/body"
  if poll; then
    while IFS=$tab read -r id status type resources not_before; do
      ! grep -q "^$id$tab$status$tab" "$dir/known" || continue
      [ "$status" = Scheduled ] || { echo "started $id $type of $resources"; continue; }
      echo "scheduled $id $type of $resources, not before $not_before"
      is_mine "$resources" || continue
      # If this fails, nothing is approved, and the event starts at its time.
      if [ $# = 0 ] || EVENT_ID=$id EVENT_TYPE=$type "$@" < /dev/null; then
        echo "$id" >> "$dir/to_approve"
      else
        echo "not approved: $1 ended with $?" >&2
      fi
    done < "$dir/now"
    # Completed or canceled: the event leaves the document, and nobody says which.
    while IFS=$tab read -r id status type resources not_before; do
      ! grep -q "^$id" "$dir/now" || continue
      echo "gone $id $type of $resources"
      [ "$once" = no ] || ! is_mine "$resources" || exit 0
    done < "$dir/known"
    mv "$dir/now" "$dir/known"
  fi
  while read -r id; do
    ! grep -q "^$id" "$dir/known" ||
      { ask -d "{\"StartRequests\":[{\"EventId\":\"$id\"}]}" "$events" && echo "approved $id"; } ||
      echo "$id" >> "$dir/later"
  done < "$dir/to_approve"
  mv "$dir/later" "$dir/to_approve" 2> /dev/null || : > "$dir/to_approve"
  sleep 1
done
