#!/bin/sh
# Run hooks/drain before the first event that names this machine, approve the event, and run
# hooks/restore when it is over. Needs curl and jq; HOOKS is the folder of the hooks, in which
# hooks/current says what is drained for, also after a restart.
set -u
metadata=${FOREWARN_METADATA:-http://169.254.169.254}
events="$metadata/metadata/scheduledevents?api-version=2020-07-01"
name="$metadata/metadata/instance/compute/name?api-version=2021-02-01&format=text"
hooks=${HOOKS:-./hooks}

ask() { curl --noproxy '*' -sS --fail --max-time 10 -H Metadata:true "$@"; }

# Print EventId, EventType and EventStatus, or none; or nothing, if there is no document.
find_mine() {
  ask "$events" | jq -r --arg me "$me" '[.Events[] | select(.Resources | index($me))
    | "\(.EventId) \(.EventType) \(.EventStatus)"][0] // "none none"'
}

approve() { ask -d "{\"StartRequests\":[{\"EventId\":\"${1% *}\"}]}" "$events"; }

until me=$(ask "$name"); do sleep 1; done
echo "following the events of $me"

current=$(cat "$hooks/current" 2> /dev/null || echo none)
drained=$current
approved=none
while :; do
  if found=$(find_mine) && [ -n "$found" ]; then
    status=${found##* } found=${found% *}
    if [ "$found" != "$current" ]; then
      [ "$current" = none ] || "$hooks/restore" "${current#* }"
      current=$found drained=none
      if [ "$found" != none ] && "$hooks/drain" "${found#* }"; then drained=$found; fi
      if [ "$drained" = none ]; then rm -f "$hooks/current"; else echo "$drained" > "$hooks/current"; fi
    elif [ "$status" = Scheduled ] && [ "$drained" = "$found" ] && [ "$approved" != "$found" ]; then
      approve "$found" && approved=$found
    fi
  fi
  sleep 1
done
