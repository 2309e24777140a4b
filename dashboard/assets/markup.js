// One Dash component for a whole tree of HTML that no callback addresses (dashboard/server/markup.py): the same elements,
// without an entry of the renderer for each.
"use strict";

window.cotenant = window.cotenant || {}; // completed by shell.js

(function markup() {
  const h = (...parts) => window.React.createElement(...parts);
  const clean = (href) => (href ? window.dash_clientside.clean_url(href) : undefined);

  // A link inside the dashboard changes the address without a reload; with a key held the browser does what it does.
  function follow(event) {
    const link = event.currentTarget, held = event.metaKey || event.shiftKey || event.altKey || event.ctrlKey;
    if (held || (link.target && link.target !== "_self")) return;
    event.preventDefault();
    window.cotenant.go(link.getAttribute("href"));
    window.scrollTo(0, 0);
  }

  const nested = (content) => (content === undefined || content === null ? [] : Array.isArray(content) ? content : [content]).map(draw);

  function draw(part) {
    if (Array.isArray(part)) return h(window.React.Fragment, null, ...nested(part));
    if (part === null || typeof part !== "object") return part;
    const { children, ...props } = part.props;
    if (part.type === "Link") return h("a", { ...props, href: clean(props.href), onClick: follow }, ...nested(children));
    if (part.type === "A") props.href = clean(props.href);
    return h(part.type.toLowerCase(), props, ...nested(children));
  }

  window.cotenant.Markup = ({ content }) => h(window.React.Fragment, null, ...nested(content));
})();
