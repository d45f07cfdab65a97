(function () {
  var root = document.documentElement, button = document.getElementById("theme");
  function dark() {
    return root.dataset.theme ? root.dataset.theme === "dark" : matchMedia("(prefers-color-scheme: dark)").matches;
  }
  function say() { button.textContent = dark() ? button.dataset.light : button.dataset.dark; }
  button.hidden = false;
  button.addEventListener("click", function () { root.dataset.theme = dark() ? "light" : "dark"; say(); });
  say();
  // Paper has nothing to click on: what is folded is printed unfolded.
  addEventListener("beforeprint", function () {
    document.querySelectorAll("details:not([open])").forEach(function (d) { d.open = true; d.dataset.folded = ""; });
  });
  addEventListener("afterprint", function () {
    document.querySelectorAll("details[data-folded]").forEach(function (d) { d.open = false; delete d.dataset.folded; });
  });
})();
