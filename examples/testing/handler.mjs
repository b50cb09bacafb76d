// Serve HTTP, and have the load balancer take this machine out in time: from the moment that an event
// names it until the event is gone, /healthz answers 503. The event is approved DRAIN_SECONDS later,
// when no new requests come any more. Needs Node 18 and no packages; it listens on PORT.
import http from "node:http";
import { setTimeout as sleep } from "node:timers/promises";

const metadata = process.env.FOREWARN_METADATA || "http://169.254.169.254";
const eventsUrl = `${metadata}/metadata/scheduledevents?api-version=2020-07-01`;
const nameUrl = `${metadata}/metadata/instance/compute/name?api-version=2021-02-01&format=text`;
const { PORT = "8080", DRAIN_SECONDS = "30" } = process.env;

// node:http and not fetch, which the environment can send through a proxy.
function ask(url, body) {
  return new Promise((resolve, reject) => {
    const method = body === undefined ? "GET" : "POST";
    const signal = AbortSignal.timeout(10_000);
    const options = { method, agent: false, signal, headers: { Metadata: "true" } };
    const request = http.request(url, options, async (answer) => {
      try {
        const parts = [];
        for await (const part of answer) parts.push(part);
        const text = Buffer.concat(parts).toString();
        if (answer.statusCode === 200) resolve(text);
        else reject(new Error(`${method} answered ${answer.statusCode}: ${text}`));
      } catch (error) {
        reject(error);
      }
    });
    request.on("error", reject);
    request.end(body);
  });
}

let current; // the event that names this machine, if there is one
let me;

async function look() {
  me ??= await ask(nameUrl);
  const { Events } = JSON.parse(await ask(eventsUrl)); // an empty body is no JSON
  const found = Events.find((event) => event.Resources.includes(me));
  if (found?.EventId === current?.EventId) return;
  current = found;
  console.log(found ? `draining before a ${found.EventType}` : "healthy again");
  if (found?.EventStatus !== "Scheduled") return;
  await sleep(Number(DRAIN_SECONDS) * 1000);
  const StartRequests = [{ EventId: found.EventId }];
  try {
    await ask(eventsUrl, JSON.stringify({ StartRequests }));
  } catch (error) {
    current = undefined; // found, drained and approved anew
    throw error;
  }
}

const server = http.createServer((request, response) => {
  response.statusCode = request.url === "/healthz" && current ? 503 : 200;
  response.end();
});
server.listen(Number(PORT), "127.0.0.1", () => console.log(`listening on ${server.address().port}`));

for (;;) {
  await look().catch((error) => console.error(error.message || error.code));
  await sleep(1000);
}
