// Follow scheduled events with Go's standard library.
//
//	go run scheduled_events.go [--once] [COMMAND…]
//
// COMMAND is run before an event that names this machine is approved; it finds EVENT_ID and
// EVENT_TYPE in its environment. With --once, end when the first such event is gone.
package main

import (
	"bytes"
	"encoding/json"
	"fmt"
	"io"
	"net/http"
	"os"
	"os/exec"
	"strings"
	"time"
)

type Event struct {
	EventId, EventStatus, EventType, NotBefore string
	Resources                                  []string
}

type StartRequest struct{ EventId string }

var (
	metadata  = "http://169.254.169.254"
	eventsURL = "/metadata/scheduledevents?api-version=2020-07-01"
	nameURL   = "/metadata/instance/compute/name?api-version=2021-02-01&format=text"
	// The server knows us by our connection: a proxy cannot ask in our place.
	client = http.Client{Timeout: 10 * time.Second, Transport: &http.Transport{Proxy: nil}}
)

func main() {
	if given := os.Getenv("FOREWARN_METADATA"); given != "" {
		metadata = given
	}
	command := os.Args[1:]
	once := len(command) > 0 && command[0] == "--once"
	if once {
		command = command[1:]
	}
	me := findOutWhoIAm()
	fmt.Println("I am", me)

	etag, known, toApprove := "", map[string]Event{}, map[string]bool{}
	for ; ; time.Sleep(time.Second) {
		events, newETag, err := poll(etag)
		if err != nil {
			complain(err)
		}
		etag = newETag
		if events != nil {
			for id, event := range events {
				if event.EventStatus == known[id].EventStatus {
					continue
				}
				fmt.Println(strings.ToLower(event.EventStatus), event)
				if event.EventStatus == "Scheduled" && event.names(me) && drain(command, event) {
					toApprove[id] = true
				}
			}
			// Completed or canceled: the event leaves the document, and nobody says which.
			for id, event := range known {
				if _, isThere := events[id]; !isThere {
					delete(toApprove, id)
					fmt.Println("gone", event)
					if once && event.names(me) {
						return
					}
				}
			}
			known = events
		}
		approve(toApprove)
	}
}

// findOutWhoIAm returns the name that Resources has for this machine; it need not be the host name.
func findOutWhoIAm() string {
	for ; ; time.Sleep(time.Second) {
		_, name, err := call("GET", nameURL, nil, "")
		if err == nil && len(name) > 0 {
			return string(name)
		}
		complain(err)
	}
}

// poll returns the events there are and their ETag, or no events when there is nothing new to know.
// After trouble the ETag is forgotten: a server that comes back may count its documents anew.
func poll(etag string) (map[string]Event, string, error) {
	answer, body, err := call("GET", eventsURL, nil, etag)
	if err != nil {
		return nil, "", err
	}
	if answer.StatusCode == http.StatusNotModified {
		return nil, etag, nil
	}
	var document struct{ Events []Event }
	if err := json.Unmarshal(body, &document); err != nil { // so it is with an empty body
		return nil, "", err
	}
	events := map[string]Event{}
	for _, event := range document.Events {
		events[event.EventId] = event
	}
	return events, answer.Header.Get("ETag"), nil
}

// approve lets events start before their time, for everybody in their Resources.
func approve(ids map[string]bool) {
	for id := range ids {
		body, _ := json.Marshal(map[string][]StartRequest{"StartRequests": {{EventId: id}}})
		if _, _, err := call("POST", eventsURL, body, ""); err != nil {
			complain(err)
			continue
		}
		fmt.Println("approved", id)
		delete(ids, id)
	}
}

// drain stops taking work. If that fails, nothing is approved, and the event starts at its time.
func drain(command []string, event Event) bool {
	if len(command) == 0 {
		return true
	}
	process := exec.Command(command[0], command[1:]...)
	process.Env = append(os.Environ(), "EVENT_ID="+event.EventId, "EVENT_TYPE="+event.EventType)
	process.Stdout, process.Stderr = os.Stdout, os.Stderr
	if err := process.Run(); err != nil {
		complain(fmt.Errorf("not approved: %s: %w", command[0], err))
		return false
	}
	return true
}

// call fails for all that passes by itself: refused, reset, timed out, 404, 410, 429, 5xx.
func call(method, path string, body []byte, etag string) (*http.Response, []byte, error) {
	request, err := http.NewRequest(method, metadata+path, bytes.NewReader(body))
	if err != nil {
		return nil, nil, err
	}
	request.Header.Set("Metadata", "true")
	if etag != "" {
		request.Header.Set("If-None-Match", etag)
	}
	answer, err := client.Do(request)
	if err != nil {
		return nil, nil, err
	}
	defer answer.Body.Close()
	content, err := io.ReadAll(answer.Body)
	if err == nil && answer.StatusCode != http.StatusOK && answer.StatusCode != http.StatusNotModified {
		err = fmt.Errorf("%s answered %s: %s", method, answer.Status, content)
	}
	return answer, content, err
}

func (event Event) names(me string) bool {
	for _, name := range event.Resources {
		if name == me {
			return true
		}
	}
	return false
}

func (event Event) String() string {
	when := ""
	if event.NotBefore != "" {
		when = ", not before " + event.NotBefore
	}
	names := strings.Join(event.Resources, ", ")
	return fmt.Sprintf("%s %s of %s%s", event.EventId, event.EventType, names, when)
}

func complain(trouble error) {
	if trouble != nil {
		fmt.Fprintln(os.Stderr, trouble)
	}
}
