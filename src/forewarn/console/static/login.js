// A link that signs in has its code behind the #, where no server, log or proxy sees it.
"use strict";

const code = location.hash.slice(1);
if (code) {
  history.replaceState(null, "", location.pathname + location.search);
  document.getElementById("code").value = code;
  document.getElementById("login").submit();
}
