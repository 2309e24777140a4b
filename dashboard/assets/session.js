// What the server says about who asks: a token that is out of date is taken anew; the end of a login or of the server is shown.
"use strict";

(function session() {
  const plain = window.fetch.bind(window);
  const base = () => document.documentElement.dataset.base || "/";

  const token = () => {
    const found = document.cookie.split("; ").find((part) => part.startsWith("_csrf_token="));
    return found ? found.slice("_csrf_token=".length) : "";
  };

  const withToken = (init) => {
    const headers = new Headers((init && init.headers) || {});
    headers.set("X-CSRFToken", token());
    return { ...init, headers };
  };

  // Above everything, once; the page stays as it is, so that nothing that was typed is lost.
  const ended = (answer) => {
    if (document.getElementById("ended")) return;
    const [message, fix] = answer.headers.get("X-Cotenant-Launch")
      ? ["The server was started anew: open the address that it printed. ", "Enter its launch token"]
      : ["Your login has ended. ", "Log in again"];
    const line = Object.assign(document.createElement("div"), { id: "ended", className: "banner" });
    line.setAttribute("role", "alert");
    const there = new URL(location.href);
    // Each start has a name of its own: this page's was that of the one before.
    if (answer.status === 421) there.hostname = "localhost";
    const link = Object.assign(document.createElement("a"), { href: there.href, textContent: fix });
    line.append(Object.assign(document.createElement("strong"), { textContent: message }), link);
    const main = document.getElementById("main");
    if (main) main.prepend(line);
    else document.body.prepend(line);
  };

  // A fault of the server: said once, with the id under which its log has the details.
  const failed = (answer) => {
    const known = document.getElementById("fault");
    const line = known || Object.assign(document.createElement("div"), { id: "fault", className: "banner" });
    const id = answer.headers.get("X-Request-Id") || "unknown";
    line.setAttribute("role", "alert");
    line.textContent = `The server failed to answer. Its log has the details under request ${id}.`;
    const main = document.getElementById("main");
    if (!known) (main || document.body).prepend(line);
  };

  const outOfDate = (answer) => answer.status === 403 && answer.headers.get("X-Cotenant-Again");

  // The server was started anew, or another tab logged in: the refusal has set a cookie with a token that holds. Questions
  // asked together are refused together, each with a cookie of its own, and what is asked again in between once more.
  const withNewToken = async (input, init) => {
    let answer = await plain(input, init);
    for (let tried = 1; tried <= 5 && outOfDate(answer); tried += 1) {
      if (tried > 1) await new Promise((done) => setTimeout(done, 100 * tried));
      answer = await plain(input, withToken(init));
    }
    return answer;
  };

  // Once somebody logs out, what the page still wants to ask is not asked.
  let leaving = false;

  window.fetch = async (input, init) => {
    if (leaving) return new Promise(() => {});
    const answer = await withNewToken(input, init);
    const formerName = answer.status === 421 && answer.headers.get("X-Cotenant-Launch");
    if ((answer.status === 401 || formerName) && !leaving) ended(answer);
    if (answer.status === 500 && !leaving) failed(answer);
    return answer;
  };

  document.addEventListener("click", async (event) => {
    if (!event.target.closest || !event.target.closest("#log-out")) return;
    leaving = true;
    const answer = await plain(base() + "auth/logout", withToken({ method: "POST" }));
    location.assign(answer.ok ? (await answer.json()).to : base());
  });
})();
