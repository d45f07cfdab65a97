(function () {
  var root = document.documentElement, button = document.getElementById("theme");
  function dark() {
    return root.dataset.theme ? root.dataset.theme === "dark" : matchMedia("(prefers-color-scheme: dark)").matches;
  }
  function say() { button.textContent = dark() ? "Light" : "Dark"; }
  button.hidden = false;
  button.addEventListener("click", function () { root.dataset.theme = dark() ? "light" : "dark"; say(); });
  say();
})();
