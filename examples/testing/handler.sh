#!/bin/sh
# Run hooks/drain before each event that names this machine, approve the event, and run
# hooks/restore when the last of them is over. Needs curl and jq; HOOKS is the folder of the hooks,
# in which hooks/current lists the events that were drained for, also after a restart.
set -u
metadata=${FOREWARN_METADATA:-http://169.254.169.254}
events="$metadata/metadata/scheduledevents?api-version=2020-07-01"
name="$metadata/metadata/instance/compute/name?api-version=2021-02-01&format=text"
hooks=${HOOKS:-./hooks}

ask() { curl --noproxy '*' -sS --fail --max-time 10 -H Metadata:true "$@"; }

# Print "document", then EventId, EventType and EventStatus of each of our events; or nothing, if there
# is no document.
find_mine() {
  ask "$events" | jq -r --arg me "$me" '"document", (.Events[] | select(.Resources | index($me))
    | "\(.EventId) \(.EventType) \(.EventStatus)")'
}

approve() { ask -d "{\"StartRequests\":[{\"EventId\":\"$1\"}]}" "$events"; }

until me=$(ask "$name"); do sleep 1; done
echo "following the events of $me"

current=$hooks/current
approved=
while :; do
  if mine=$(find_mine) && [ -n "$mine" ]; then
    while read -r id type status; do
      if [ "$id" = document ]; then
        continue
      elif ! grep -qs "^$id " "$current"; then
        if "$hooks/drain" "$type" < /dev/null; then drained=yes; else drained=no; fi
        echo "$id $drained $type" >> "$current"
      elif [ "$status" = Scheduled ] && grep -qs "^$id yes " "$current"; then
        case $approved in *"$id"*) ;; *) approve "$id" && approved="$approved $id" ;; esac
      fi
    done << END
$mine
END
    if [ "$mine" = document ] && [ -s "$current" ]; then
      type=$(tail -n 1 "$current")
      "$hooks/restore" "${type##* }"
      rm -f "$current"
    fi
  fi
  sleep 1
done
