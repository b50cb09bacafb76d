// Signing in. The token, or the code of a link, goes in a header. A link has its code behind the #,
// where no server, log or proxy sees it.
"use strict";

(() => {
  const form = document.getElementById("login");
  const problem = document.getElementById("problem");

  async function signIn(headers) {
    problem.hidden = true;
    let answer;
    try {
      answer = await fetch("/login", { method: "POST", headers });
    } catch {
      answer = null;
    }
    if (answer?.ok) {
      location.replace(form.dataset.wanted);
      return;
    }
    problem.textContent = (await answer?.text()) || "The server does not answer. Try again.";
    problem.hidden = false;
    document.getElementById("token").focus();
  }

  form.addEventListener("submit", (event) => {
    event.preventDefault();
    const token = document.getElementById("token").value.trim();
    // A header takes no other characters, and no token has any.
    signIn({ Authorization: `Bearer ${token.replace(/[^ -~]/g, "?")}` });
  });

  const code = location.hash.slice(1);
  if (code) {
    history.replaceState(null, "", location.pathname + location.search);
    signIn({ "X-Sign-In-Code": code });
  }
})();
