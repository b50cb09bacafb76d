// What pages do by themselves: follow changes, let times pass, open and close dialogs, say what was
// done. Everything else is HTML from the server, which htmx fetches and merges into the page.
"use strict";

(() => {
  const byId = (id) => document.getElementById(id);
  const meta = (name) => document.querySelector(`meta[name="forewarn-${name}"]`);

  // --- times ---------------------------------------------------------------------------------

  const isVirtual = meta("clock").dataset.kind === "virtual";
  let ahead = 0; // how far the clock of the server is ahead of that of the browser

  function readClock() {
    const shown = Date.parse(byId("main")?.dataset.now ?? meta("clock").content);
    if (!Number.isNaN(shown)) ahead = shown - Date.now();
  }

  function serverTime() {
    if (!isVirtual) return Date.now() + ahead;
    return Date.parse(byId("main")?.dataset.now ?? meta("clock").content);
  }

  function spell(milliseconds) {
    let rest = Math.max(0, Math.round(milliseconds / 1000));
    const days = Math.floor(rest / 86400);
    const hours = Math.floor((rest %= 86400) / 3600);
    const minutes = Math.floor((rest %= 3600) / 60);
    const seconds = rest % 60;
    if (days) return `${days} d ${hours} h`;
    if (hours) return `${hours} h ${minutes} min`;
    if (minutes) return `${minutes} min ${String(seconds).padStart(2, "0")} s`;
    return `${seconds} s`;
  }

  const pad = (number) => String(number).padStart(2, "0");
  const clockTime = (at) => `${pad(at.getHours())}:${pad(at.getMinutes())}:${pad(at.getSeconds())}`;
  const dateOf = (at) => `${at.getFullYear()}-${pad(at.getMonth() + 1)}-${pad(at.getDate())}`;

  const styles = {
    time: (at) => clockTime(at),
    date: (at) => `${dateOf(at)} ${clockTime(at)}`,
    when: (at, now) => (dateOf(at) === dateOf(new Date(now)) ? clockTime(at) : `${dateOf(at)} ${clockTime(at)}`),
    soon: (at, now) => `${dateOf(at) === dateOf(new Date(now)) ? "" : `${dateOf(at).slice(5)} `}${clockTime(at).slice(0, 5)}`,
    ago: (at, now) => (now - at < 1000 ? "now" : `${spell(now - at)} ago`),
    countdown: (at, now) => (at > now ? `in ${spell(at - now)}` : "due now"),
    since: (at, now) => `for ${spell(now - at)}`,
  };

  function tick() {
    const now = serverTime();
    for (const each of document.querySelectorAll("time[data-as]")) {
      const say = styles[each.dataset.as];
      const at = new Date(each.dateTime);
      if (!say || Number.isNaN(at.getTime())) continue;
      const text = say(at, now);
      if (each.textContent !== text) each.textContent = text;
    }
  }

  // The axis of a plot is drawn for GMT. Here it gets the time of the browser: other labels where
  // lines stand at hours, or another place where they stand at midnights.
  function fitAxis() {
    const day = { day: "numeric", month: "short" };
    for (const each of document.querySelectorAll("[data-axis]")) {
      const at = new Date(each.dataset.axis);
      const isMidnight = at.getHours() === 0 && at.getMinutes() === 0;
      each.textContent = isMidnight
        ? at.toLocaleDateString("en-GB", day)
        : `${pad(at.getHours())}:${pad(at.getMinutes())}`;
    }
    for (const each of document.querySelectorAll("[data-shift]")) {
      each.setAttribute("x", `${new Date().getTimezoneOffset() * each.dataset.shift}%`);
    }
    for (const each of document.querySelectorAll("[data-zone]")) {
      each.textContent = Intl.DateTimeFormat().resolvedOptions().timeZone.replace("_", " ");
    }
  }

  // --- following changes -----------------------------------------------------------------------

  const LEAST_GAP = 700;
  let stream = null;
  let heardAt = 0;
  let askedAt = 0;
  let waiting = null;
  let retries = 0;

  function show(state, text) {
    byId("live").dataset.state = state;
    if (byId("live-text").textContent !== text) byId("live-text").textContent = text;
  }

  function refresh(soon = false) {
    if (waiting || document.hidden) return;
    // Many browsers hear of the same change; they do not all ask at the same moment.
    const chance = soon ? 0 : Math.random() * 250;
    const pause = Math.max(askedAt + LEAST_GAP - Date.now(), 0);
    waiting = setTimeout(() => {
      waiting = null;
      askedAt = Date.now();
      const main = byId("main");
      if (main?.hasAttribute("hx-get")) htmx.trigger(main, "refresh");
    }, soon ? 0 : pause + chance);
  }

  function listen() {
    if (stream || document.hidden) return;
    stream = new EventSource("/live");
    stream.addEventListener("hello", (event) => {
      retries = 0;
      heardAt = Date.now();
      show("live", "Live");
      if (event.data !== meta("assets").content && !isBusy()) location.reload();
    });
    stream.onmessage = () => {
      heardAt = Date.now();
      show("live", "Live");
      refresh();
    };
    stream.onerror = () => {
      deafen();
      const text = heardAt ? `Connection lost, shown as of ${clockTime(new Date(heardAt))}` : "Connection lost";
      show("stale", text);
      retries += 1;
      setTimeout(listen, Math.min(1000 * retries, 5000));
      // An answer that is not a stream may mean that the session is over: the page finds out.
      if (retries > 1) refresh();
    };
  }

  function deafen() {
    stream?.close();
    stream = null;
  }

  function isBusy() {
    return document.querySelector("dialog[open], [data-keep]") !== null;
  }

  document.addEventListener("visibilitychange", () => {
    // A browser has six connections for all its tabs.
    if (document.hidden) deafen();
    else listen();
  });
  window.addEventListener("pagehide", deafen);

  // --- dialogs, menus and messages ---------------------------------------------------------------

  function say(message) {
    const toast = document.createElement("p");
    toast.textContent = message;
    byId("toasts").append(toast);
    setTimeout(() => toast.remove(), 6000);
  }

  document.addEventListener("click", (event) => {
    const opener = event.target.closest("[data-dialog]");
    if (opener) {
      const dialog = byId(opener.dataset.dialog);
      dialog.querySelector(".refusal")?.replaceChildren();
      dialog.showModal();
      return;
    }
    if (event.target.closest("[data-close]")) event.target.closest("dialog").close();
    if (event.target.closest("#menu")) {
      const isOpen = document.body.classList.toggle("with-menu");
      byId("menu").setAttribute("aria-expanded", String(isOpen));
    }
  });

  // A dialog that is left keeps nothing, such as the secret of a token; and what changed while it was
  // open is shown. The event does not bubble.
  document.addEventListener("close", (event) => {
    event.target.querySelector?.(".refusal")?.replaceChildren();
    event.target.querySelector?.("form")?.reset();
    refresh(true);
  }, true);

  // A name that is found becomes a line of the text that it is looked up for.
  function addLine(finder) {
    const text = byId(finder.dataset.addsTo);
    const lines = text.value.split("\n").filter((line) => line.trim());
    if (finder.value.trim()) text.value = [...lines, finder.value.trim(), ""].join("\n");
    finder.value = "";
    text.dispatchEvent(new Event("input", { bubbles: true }));
  }

  document.addEventListener("keydown", (event) => {
    if (event.key !== "Enter" || !event.target.matches("[data-adds-to]")) return;
    event.preventDefault();
    addLine(event.target);
  });
  document.addEventListener("click", (event) => {
    const button = event.target.closest("[data-adds]");
    if (button) addLine(byId(button.dataset.adds));
  });

  document.addEventListener("done", (event) => {
    const { message, location: next } = event.detail;
    document.querySelector("dialog[open]")?.close();
    // Refreshes leave refusals alone, so that nobody misses one; success takes them away.
    for (const refusal of document.querySelectorAll(".refusal")) refusal.replaceChildren();
    if (next) {
      sessionStorage.setItem("done", message);
      location.assign(next);
      return;
    }
    say(message);
    refresh(true);
  });

  // A choice in a form of filters applies at once.
  document.addEventListener("change", (event) => {
    const form = event.target.closest("form[data-filters]");
    if (form) form.requestSubmit();
  });

  // A grid of links is one stop of the Tab key; within it, arrow keys go from one to the next.
  const steps = { ArrowRight: 1, ArrowDown: 1, ArrowLeft: -1, ArrowUp: -1 };
  document.addEventListener("keydown", (event) => {
    const link = event.target.closest("[data-arrows] a");
    if (!link || !(event.key in steps) || event.altKey || event.ctrlKey || event.metaKey) return;
    const links = [...link.closest("[data-arrows]").querySelectorAll("a")];
    links[links.indexOf(link) + steps[event.key]]?.focus();
    event.preventDefault();
  });

  document.addEventListener("htmx:after:swap", () => {
    readClock();
    tick();
    fitAxis();
    const title = byId("main")?.dataset.title;
    if (title) document.title = `${title} · forewarn`;
  });
  document.addEventListener("htmx:error", () => show("stale", "The server does not answer"));

  readClock();
  tick();
  fitAxis();
  setInterval(tick, 1000);
  document.title = `${byId("main")?.dataset.title ?? "Console"} · forewarn`;
  const done = sessionStorage.getItem("done");
  if (done) {
    sessionStorage.removeItem("done");
    say(done);
  }
  listen();
})();
