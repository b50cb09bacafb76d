#!/bin/sh
# Run hooks/drain before the first event that names this machine, approve the event, and run
# hooks/restore when it is over. Needs curl and jq; HOOKS is the folder of the hooks.
set -u
metadata=${FOREWARN_METADATA:-http://169.254.169.254}
events="$metadata/metadata/scheduledevents?api-version=2020-07-01"
name="$metadata/metadata/instance/compute/name?api-version=2021-02-01&format=text"
hooks=${HOOKS:-./hooks}

ask() { curl --noproxy '*' -sS --fail --max-time 10 -H Metadata:true "$@"; }

# Print EventId and EventType, or none. An error or an empty body has nothing for jq, which fails.
find_mine() {
  ask "$events" | jq -er --arg me "$me" \
    '[.Events[] | select(.Resources | index($me)) | "\(.EventId) \(.EventType)"][0] // "none"'
}

until me=$(ask "$name"); do sleep 1; done
echo "following the events of $me"

current=none
while :; do
  if found=$(find_mine) && [ "$found" != "$current" ]; then
    [ "$current" = none ] || "$hooks/restore" "${current#* }"
    current=$found
    if [ "$found" != none ] && "$hooks/drain" "${found#* }"; then
      # What could not be approved is found, drained and approved anew.
      ask -d "{\"StartRequests\":[{\"EventId\":\"${found% *}\"}]}" "$events" || current=none
    fi
  fi
  sleep 1
done
