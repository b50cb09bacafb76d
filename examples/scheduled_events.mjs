// Follow scheduled events with Node 18 or newer, without packages.
//
//   node scheduled_events.mjs [--once] [COMMAND…]
//
// COMMAND is run before an event that names this machine is approved; it finds EVENT_ID and
// EVENT_TYPE in its environment. With --once, end when the first such event is gone.
import { spawnSync } from "node:child_process";
import http from "node:http";
import { setTimeout as sleep } from "node:timers/promises";

const metadata = process.env.FOREWARN_METADATA || "http://169.254.169.254";
const eventsUrl = `${metadata}/metadata/scheduledevents?api-version=2020-07-01`;
const nameUrl = `${metadata}/metadata/instance/compute/name?api-version=2021-02-01&format=text`;

const once = process.argv[2] === "--once";
const [command, ...words] = process.argv.slice(once ? 3 : 2);

// node:http and not fetch: the server knows us by our connection, so a proxy cannot ask in our
// place, and fetch can be told by the environment to use one.
function call(url, { method = "GET", headers = {}, body = "" } = {}) {
  return new Promise((resolve, reject) => {
    const signal = AbortSignal.timeout(10_000);
    const options = { method, agent: false, signal, headers: { Metadata: "true", ...headers } };
    const request = http.request(url, options, (answer) => {
      let text = "";
      answer.setEncoding("utf8");
      answer.on("data", (part) => (text += part));
      answer.on("error", reject);
      answer.on("end", () => {
        const { statusCode: status, headers: { etag } } = answer;
        if (status === 200 || status === 304) resolve({ status, text, etag });
        else reject(new Error(`${method} answered ${status}: ${text}`));
      });
    });
    request.on("error", reject);
    request.end(body);
  });
}

// Refused, reset, timed out, 404, 410, 429, 5xx, an empty body (which is no JSON): all of it passes.
async function attempt(action) {
  try {
    return await action();
  } catch (error) {
    console.error(error.message || error.code);
    return undefined;
  }
}

async function poll(etag) {
  const answer = await call(eventsUrl, { headers: etag ? { "If-None-Match": etag } : {} });
  if (answer.status === 304) return { etag };
  const events = JSON.parse(answer.text).Events;
  return { etag: answer.etag, events: new Map(events.map((event) => [event.EventId, event])) };
}

// If this fails, nothing is approved, and the event starts at its time.
function drain(event) {
  if (!command) return true;
  const env = { ...process.env, EVENT_ID: event.EventId, EVENT_TYPE: event.EventType };
  const { status, error } = spawnSync(command, words, { env, stdio: "inherit" });
  if (status !== 0) console.error(`not approved: ${command}: ${error?.message ?? `ended with ${status}`}`);
  return status === 0;
}

function approve(ids) {
  const StartRequests = [...ids].map((EventId) => ({ EventId }));
  return call(eventsUrl, { method: "POST", body: JSON.stringify({ StartRequests }) });
}

function describe({ EventId, EventType, Resources, NotBefore }) {
  const when = NotBefore && `, not before ${NotBefore}`;
  return `${EventId} ${EventType} of ${Resources.join(", ")}${when}`;
}

// Resources has this name, which need not be the host name.
let me;
while (!(me = (await attempt(() => call(nameUrl)))?.text)) await sleep(1000);
console.log(`I am ${me}`);

let etag;
let known = new Map();
let toApprove = new Set();
for (;;) {
  // After trouble the ETag is forgotten: a server that comes back may count its documents anew.
  const answer = (await attempt(() => poll(etag))) ?? {};
  etag = answer.etag;
  if (answer.events) {
    const before = known;
    known = answer.events;
    for (const [id, event] of known) {
      if (before.get(id)?.EventStatus === event.EventStatus) continue;
      console.log(`${event.EventStatus.toLowerCase()} ${describe(event)}`);
      const isAhead = event.EventStatus === "Scheduled" && event.Resources.includes(me);
      if (isAhead && drain(event)) toApprove.add(id);
    }
    // Completed or canceled: the event leaves the document, and nobody says which.
    for (const event of [...before.values()].filter((event) => !known.has(event.EventId))) {
      console.log(`gone ${describe(event)}`);
      if (once && event.Resources.includes(me)) process.exit();
    }
  }
  toApprove = new Set([...toApprove].filter((id) => known.has(id)));
  if (toApprove.size && (await attempt(() => approve(toApprove)))) {
    console.log(`approved ${[...toApprove].join(" ")}`);
    toApprove.clear();
  }
  await sleep(1000);
}
