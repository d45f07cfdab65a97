// SPDX-License-Identifier: Apache-2.0

package main

import (
	"context"
	"crypto/x509/pkix"
	"encoding/json"
	"fmt"
	"net"
	"os"
	"path/filepath"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/chromedp/chromedp/kb"

	"github.com/jeoul/jeoul/cmd/jeoul/e2e"
	"github.com/jeoul/jeoul/internal/balancer/api/access"
	"github.com/jeoul/jeoul/internal/balancer/ops"
	"github.com/jeoul/jeoul/internal/test/testbrowser"
	"github.com/jeoul/jeoul/internal/test/testcert"
	"github.com/jeoul/jeoul/internal/test/testenv"
)

// dashboardTarget is the target that runs the tests with a browser.
const dashboardTarget = "test-dashboard"

// openDashboard opens the dashboard and waits until it is live.
func openDashboard(t *testing.T, url string) *testbrowser.Tab {
	t.Helper()
	tab := testbrowser.Open(t, url)
	tab.Until("the page is live", linkLive)
	t.Cleanup(func() {
		if faults := tab.Faults(); len(faults) > 0 {
			t.Errorf("the page has done wrong: %q", faults)
		}
	})
	return tab
}

// linkLive is true while the page is connected to the balancer.
const linkLive = `document.getElementById("link").textContent.includes("live")`

// row returns the row of a backend, as an expression.
func row(backend string) string {
	return fmt.Sprintf(`document.querySelector('[data-key="b %s"]')`, backend)
}

// TestDashboardInBrowser uses the dashboard of a live laboratory as a person does.
func TestDashboardInBrowser(t *testing.T) {
	testenv.Target(t, dashboardTarget)
	s := newDashboardLab(t, entry{})
	ctx, end := context.WithCancel(t.Context())
	t.Cleanup(end)
	web := s.ask(t, ctx, "web", 40)
	tab := openDashboard(t, s.url)
	t.Run("a killed backend turns down", func(t *testing.T) { s.expectDownAfterKill(t, tab) })
	t.Run("a drain by click takes effect", func(t *testing.T) { s.drainByClick(t, tab, web) })
	t.Run("the page survives a restart", func(t *testing.T) {
		kill(t, s.daemon)
		tab.Until("the page says that the balancer is gone",
			`document.getElementById("link").textContent.includes("not reached")`)
		s.daemon = jeoul(t, s.host, &s.log, s.arguments()...)
		tab.Until("the page is live again", linkLive+` && `+row("web/web03")+`.textContent.includes("draining")`)
		leave(t, s.daemon)
		s.daemon = jeoul(t, s.host, &s.log, s.arguments()...)
		s.eventually(t, "the daemon answers", func(*ops.Status) bool { return true })
		pid := s.status(t).PID
		tab.Until("the page shows the next process", linkLive)
		tab.Eval(`location.hash = "#/balancer"`)
		tab.Until("the page shows the next process",
			fmt.Sprintf(`document.querySelector("main").textContent.includes("%d")`, pid))
	})
	t.Run("the page survives an upgrade", func(t *testing.T) { s.expectUpgradeNotice(t, tab) })
	t.Run("all is done by keys", func(t *testing.T) { s.operateByKeys(t, tab) })
	t.Run("focus stays where rows move", func(t *testing.T) { expectFocusKept(t, tab) })
	t.Run("panic counts those that take flows", func(t *testing.T) { expectPanicCounted(t, tab) })
	t.Run("markup stays text", func(t *testing.T) { expectMarkupEscaped(t, tab) })
	t.Run("axe-core finds no error", func(t *testing.T) { checkAccessibility(t, tab) })
	if dir := os.Getenv("JEOUL_TEST_PICTURES"); dir != "" {
		s.pictures(t, ctx, tab, dir)
	}
	end()
	stop(t, s.daemon)
}

// killsShown is how often a backend is killed, so that there is more than one time of the page.
const killsShown = 10

// expectDownAfterKill ends a backend's server repeatedly and waits until the page shows that it is down. It logs how
// long that took.
func (s *dashboardLab) expectDownAfterKill(t *testing.T, tab *testbrowser.Tab) {
	up := row("web/web02") + `.querySelector(".pill").textContent.includes("up")`
	for range killsShown {
		tab.Until("web02 is up", up)
		tab.Eval(fmt.Sprintf(watchForDown, row("web/web02")))
		began := time.Now()
		s.faultyServers[s.Servers[1].Name].close(t)
		tab.Until("web02 is unhealthy", `window.shownAt > 0`)
		var at struct{ Decided, Shown float64 }
		if err := json.Unmarshal(tab.Eval(`import("/dashboard/model.js").then(({ model }) => ({ shown: shownAt, decided: Date.parse(
			model.events.find((e) => e.service === "web" && e.backend === "web02" && e.message.includes("is unhealthy")).at) }))`),
			&at); err != nil {
			t.Fatal(err)
		}
		t.Logf("the page showed it %.0f ms after the kill, and %.0f ms after the balancer's decision",
			at.Shown-float64(began.UnixMilli()), at.Shown-at.Decided)
		tab.Until("the title counts it", `/^\(\d+\) /.test(document.title)`)
		s.faultyServers[s.Servers[1].Name].open(t)
	}
	tab.Until("web02 is up again", up)
}

// watchForDown makes the page record when it has drawn that a backend, whose row is an expression, is unhealthy.
const watchForDown = `window.shownAt = 0; new MutationObserver((_, observer) => {
	if (!%s?.querySelector(".pill").textContent.includes("unhealthy")) return;
	observer.disconnect();
	requestAnimationFrame(() => { window.shownAt = Date.now(); });
}).observe(document.querySelector("main"), { subtree: true, childList: true, characterData: true }); 0`

// expectUpgradeNotice lets a daemon of another build take over: the page continues, and offers to reload as that
// build's page.
func (s *dashboardLab) expectUpgradeNotice(t *testing.T, tab *testbrowser.Tab) {
	leave(t, s.daemon)
	s.startBuilt(t)
	tab.Until("the page is live, and says that another build runs",
		linkLive+` && document.querySelector('#link [data-act="reload"]')`)
	tab.Click(`#link [data-act="reload"]`)
	tab.Until("the page is the other build's", linkLive+` && !document.querySelector('#link [data-act="reload"]')`)
}

// operateByKeys changes views, filters, and disables and enables a backend without a pointer.
func (s *dashboardLab) operateByKeys(t *testing.T, tab *testbrowser.Tab) {
	s.eventually(t, "web01 takes new connections", func(status *ops.Status) bool {
		return stateNow(status, "web/web01") == "up"
	})
	tab.Eval(`location.hash = "#/services"`)
	for key, view := range map[string]string{"2": "drops", "3": "limits", "4": "balancer", "5": "events"} {
		tab.Key(key)
		tab.Until(key+" shows "+view,
			fmt.Sprintf(`location.hash === "#/%s" && document.querySelector('#views [aria-current="page"]').hash === location.hash`, view))
	}
	tab.Key("1")
	tab.Until("there is a filter", `document.getElementById("filter")`)
	tab.Key("/")
	tab.Until("the filter has the focus", `document.activeElement.id === "filter"`)
	tab.Type("#filter", "web01")
	tab.Until("only web01 is there", row("web/web01")+` && !`+row("web/web02"))
	for range 60 {
		if string(tab.Eval(`document.activeElement.dataset.act === "change"`)) == "true" {
			break
		}
		tab.Key("\t")
	}
	tab.Key("\r")
	tab.Until("the dialog is open", `document.querySelector("dialog[open]")`)
	tab.Key("\u001b")
	tab.Until("Escape leaves all as it is, and the focus returns",
		`!document.querySelector("dialog[open]") && document.activeElement.dataset.act === "change"`)
	if state := stateNow(s.status(t), "web/web01"); state != "up" {
		t.Errorf("web01 is %s", state)
	}
	s.chooseByKeys(t, tab, "disable", "out")
	s.chooseByKeys(t, tab, "enable", "up")
	tab.Eval(`document.getElementById("filter").value = ""; document.getElementById("filter").dispatchEvent(new InputEvent("input", { bubbles: true }))`)
	tab.Until("all are there again", row("web/web02"))
}

// chooseByKeys opens the dialog of the backend whose button has the focus and does one of its changes, by keys.
func (s *dashboardLab) chooseByKeys(t *testing.T, tab *testbrowser.Tab, verb, state string) {
	t.Helper()
	tab.Until("the button has the focus", `document.activeElement.dataset.act === "change"`)
	tab.Key("\r")
	tab.Until("the dialog is open, and has the focus",
		`document.querySelector("dialog[open]")?.contains(document.activeElement)`)
	for range 20 {
		if string(tab.Eval(fmt.Sprintf(`document.querySelector("dialog input:checked")?.value === %q`,
			verb))) == "true" {
			break
		}
		if string(tab.Eval(`document.activeElement.type === "radio"`)) == "true" {
			if string(tab.Eval(`document.activeElement.checked`)) == "false" {
				tab.Key(" ")
			} else {
				tab.Key(kb.ArrowDown)
			}
		} else {
			tab.Key("\t")
		}
	}
	tab.Until(verb+" is chosen",
		fmt.Sprintf(`document.querySelector("dialog input:checked").value === %q && document.querySelector('dialog button[type="submit"]')`, verb))
	tab.Key("\r")
	tab.Until("it is done", `document.querySelector("dialog").textContent.includes("Done")`)
	tab.Key("\u001b")
	s.eventually(t, "web01 is "+state, func(status *ops.Status) bool {
		return string(stateNow(status, "web/web01")) == state
	})
}

// expectFocusKept: a row that moves, because others have more connections now, keeps the focus in it.
func expectFocusKept(t *testing.T, tab *testbrowser.Tab) {
	tab.Until("the rows are there", row("web/web04"))
	tab.Eval(row("web/web04") + `.querySelector("button").focus()`)
	for _, column := range []string{"weight", "name"} {
		before := string(tab.Eval(row("web/web04") + `.getAttribute("aria-rowindex")`))
		tab.Eval(fmt.Sprintf(`document.querySelector('[data-column=%q]').click()`, column))
		tab.Until("the row has moved", fmt.Sprintf(`%s.getAttribute("aria-rowindex") !== %s`, row("web/web04"), before))
		if on := tab.Eval(`document.activeElement === ` + row("web/web04") +
			`.querySelector("button")`); string(on) != "true" {
			t.Errorf("sorted by %s, the focus is on %s", column, tab.Eval(`document.activeElement.outerHTML`))
		}
	}
	tab.Eval(`document.querySelector('[data-column="name"]').click(); document.querySelector('[data-column="name"]').click()`)
}

// drainByClick drains web03 as a person does, and waits until clients get no more of its answers.
func (s *dashboardLab) drainByClick(t *testing.T, tab *testbrowser.Tab, web *responseCounts) {
	tab.Click(`[data-key="b web/web03"] [data-act="change"]`)
	tab.Click(`dialog input[value="drain"]`)
	tab.Until("it is said what will be",
		`document.querySelector("dialog .says").textContent.includes("no new connection")`)
	tab.Click(`dialog button[type="submit"]`)
	tab.Until("it is done", `document.querySelector("dialog").textContent.includes("Done")`)
	tab.Click(`dialog [data-act="dismiss"]`)
	tab.Until("web03 is draining", row("web/web03")+`.textContent.includes("draining")`)
	web.awaitMore(t, 5) // the answers that were under way
	before, _ := web.of(s.Servers[2].Name)
	web.awaitMore(t, 60)
	if after, _ := web.of(s.Servers[2].Name); after != before {
		t.Errorf("the drained backend got %d new connections", after-before)
	}
}

// expectPanicCounted makes the page count the backends of a service in panic: failing ones that take new flows are up,
// and those without a path, and failing backups, take none.
func expectPanicCounted(t *testing.T, tab *testbrowser.Tab) {
	const service = `{ name: "web", serving: "all", backends: [{ name: "a", state: "up", weight: 1 },
		{ name: "b", state: "no-mac", weight: 1 }, { name: "c", state: "unhealthy", weight: 1, backup: true }] }`
	for expression, want := range map[string]string{
		`import("/dashboard/services.js").then(({ servicePill }) => servicePill(` + service + `,
			{ backends: 3, states: { up: 1, "no-mac": 1, unhealthy: 1 } }).lastChild.textContent)`: `"1 of 3 up"`,
		`import("/dashboard/model.js").then(({ shares }) => shares(` + service + `).map((one) => one.ideal))`: `[1,0,0]`,
	} {
		if got := string(tab.Eval(expression)); got != want {
			t.Errorf("%s is %s, want %s", expression, got, want)
		}
	}
}

// expectMarkupEscaped makes the balancer send names and texts with markup.
func expectMarkupEscaped(t *testing.T, tab *testbrowser.Tab) {
	const markup = `<img id="made" src="x" onerror="document.title = 'run'"><b>bold</b>`
	tab.Eval(`location.hash = "#/events"`)
	tab.Eval(fmt.Sprintf(`import("/dashboard/model.js").then(({ model }) => model.tell({ id: "x-1", at: new Date().toISOString(), level: "info",
		kind: %[1]q, service: %[1]q, backend: %[1]q, by: %[1]q, message: %[1]q }))`, markup))
	tab.Until("the text is shown as it is",
		fmt.Sprintf("document.querySelector('.events').textContent.includes(%q)", markup))
	if made := tab.Eval(
		`document.getElementById("made") !== null || document.title === "run"`); string(made) != "false" {
		t.Error("the text became an element")
	}
}

// checkAccessibility checks every view with axe-core, in light and in dark, in a wide and in a narrow window.
func checkAccessibility(t *testing.T, tab *testbrowser.Tab) {
	script, err := os.ReadFile(filepath.Join("..", "..", "internal", "test", "testbrowser", "axe", "axe.min.js"))
	if err != nil {
		t.Fatal(err)
	}
	tab.Eval(string(script) + "; 0")
	for _, window := range []struct {
		width, height int
		dark          bool
	}{{1440, 900, false}, {1440, 900, true}, {390, 844, false}, {390, 844, true}} {
		tab.Window(window.width, window.height, window.dark)
		for _, view := range []string{"services", "service/shop", "service/shop/shop01", "drops", "limits", "balancer",
			"events"} {
			tab.Eval(fmt.Sprintf("location.hash = %q", "#/"+view))
			tab.Until("the view is there", `document.querySelector("main").children.length > 0`)
			expectAccessible(t, tab, fmt.Sprintf("%s, %+v", view, window))
			if wide := tab.Eval(`document.documentElement.scrollWidth - innerWidth`); string(wide) != "0" &&
				!strings.HasPrefix(string(wide), "-") {
				t.Errorf("%s, %+v: the page is %s pixels wider than the window", view, window, wide)
			}
		}
		tab.Eval(`location.hash = "#/services"`)
		tab.Click(`[data-key="b web/web01"] [data-act="change"]`)
		for _, verb := range []string{"drain", "disable", "enable", "weight"} {
			tab.Click(fmt.Sprintf(`dialog input[value=%q]`, verb))
			tab.Until("it is said what will be", `document.querySelector("dialog .says")`)
			expectAccessible(t, tab, fmt.Sprintf("the dialog to %s, %+v", verb, window))
		}
		tab.Click(`dialog [data-act="dismiss"]`)
	}
	tab.Window(1440, 900, false)
	tab.Eval(`location.hash = "#/services"`)
}

// expectAccessible checks the current view with axe-core.
func expectAccessible(t *testing.T, tab *testbrowser.Tab, what string) {
	t.Helper()
	var found []string
	text := tab.Eval(
		`axe.run(document).then((r) => r.violations.map((v) => v.id + ": " + v.help + " " + v.nodes.slice(0, 3).map((n) => n.html).join(" ")))`)
	if err := json.Unmarshal(text, &found); err != nil {
		t.Fatal(err)
	}
	if len(found) > 0 {
		t.Errorf("%s: %s", what, strings.Join(found, "\n"))
	}
}

// pictures writes the pictures of docs/guides/dashboard.md.
func (s *dashboardLab) pictures(t *testing.T, ctx context.Context, tab *testbrowser.Tab, dir string) {
	s.ask(t, ctx, "shop", 60)
	s.ask(t, ctx, "mail", 25)
	s.faultyServers[s.Servers[3].Name].close(t)
	select {
	case <-time.After(90 * time.Second): // Charts need something to show.
	case <-ctx.Done():
		return
	}
	// No scroll bar is drawn, and space for one would be an empty strip.
	tab.Eval(`document.documentElement.style.scrollbarGutter = "auto"`)
	for _, p := range []struct {
		name, view    string
		width, height int
		dark          bool
	}{{"light", "services", 1440, 860, false}, {"dark", "service/shop", 1440, 860, true},
		{"phone", "services", 390, 844, false}} {
		tab.Window(p.width, p.height, p.dark)
		tab.Eval(fmt.Sprintf("location.hash = %q; new Promise((r) => setTimeout(r, 3000))", "#/"+p.view))
		if err := os.WriteFile(filepath.Join(dir, "dashboard-"+p.name+".png"), tab.Picture(), 0o644); err != nil {
			t.Fatal(err)
		}
	}
}

// TestDashboardOverTCP opens the page that the balancer serves itself. The page says that a token with the role read
// may not change backends, and the balancer rejects its changes with the reason.
func TestDashboardOverTCP(t *testing.T) {
	testenv.Target(t, dashboardTarget)
	dir := t.TempDir()
	path := func(name string) string { return filepath.Join(dir, name) }
	testcert.NewAuthority(t).Write(t, pkix.Name{CommonName: "lb1"}, 24*time.Hour, path("crt"), path("key"))
	secret, reader, err := access.NewToken("viewer", ops.RoleRead)
	if err != nil {
		t.Fatal(err)
	}
	text, err := access.AddToken("tokens", nil, reader)
	if err == nil {
		err = os.WriteFile(path("tokens"), text, 0o600)
	}
	if err != nil {
		t.Fatal(err)
	}
	s := newDashboardLab(t, entry{"api": entry{"listen": "127.0.0.1:9540", "certificate": path("crt"), "key": path("key"),
		"tokens": path("tokens")}})
	link := s.relay(t, "127.0.0.1:9540")
	tab := testbrowser.Open(t, "https://"+link.address+"/")
	tab.Type("#token", "wrong")
	tab.Click(`form button[type="submit"]`)
	tab.Until("a wrong token is refused",
		`document.querySelector(".login") && document.body.textContent.includes("unknown")`)
	tab.Type("#token", secret)
	tab.Click(`form button[type="submit"]`)
	tab.Until("the page is live", linkLive)
	tab.Click(`[data-key="b web/web01"] [data-act="change"]`)
	tab.Click(`dialog input[value="drain"]`)
	tab.Until("it is said that one may only look",
		`document.querySelector("dialog").textContent.includes("token viewer has the role read")`)
	tab.Click(`dialog button[type="submit"]`)
	tab.Until("the balancer refuses it, and says why",
		`document.querySelector("dialog").textContent.includes("this needs operate")`)
	if state := stateNow(s.status(t), "web/web01"); state != "up" {
		t.Errorf("web01 is %s", state)
	}
	tab.Click(`dialog [data-act="dismiss"]`)
	t.Run("the page survives sleep", func(t *testing.T) { s.expectCatchUp(t, tab, link) })
	if faults := tab.Faults(); len(faults) > 0 {
		t.Errorf("the page has done wrong: %q", faults)
	}
	stop(t, s.daemon)
}

// expectCatchUp makes the page miss changes in each way in which browsers and their machines suspend it, and checks
// that it catches up.
func (s *dashboardLab) expectCatchUp(t *testing.T, tab *testbrowser.Tab, link *relay) {
	// As if an hour had passed while the test does not wait.
	tab.Eval(`window.passed = { wall: 0, running: 0 };
		((wall, running) => { Date.now = () => wall() + passed.wall; performance.now = () => running() + passed.running; })(Date.now, performance.now.bind(performance)); 0`)
	missed := func(what, backend string) {
		t.Helper()
		tab.Until(what+": the page has caught up", linkLive+` && `+row("web/"+backend)+
			`.textContent.includes("draining")`)
		tab.Eval(`location.hash = "#/events"`)
		tab.Until(what+": the event that was missed is there once", fmt.Sprintf(
			`[...document.querySelectorAll(".events li")].filter((e) => e.textContent.includes("web/%s") && e.textContent.includes("drain")).length === 1`, backend))
		tab.Eval(`location.hash = "#/services"`)
		tab.Until("the services are there", row("web/web01"))
	}
	drain := func(backend string) {
		t.Helper()
		s.operate(t, ops.Order{Verb: ops.Drain, Service: "web", Backend: backend})
	}

	tab.Freeze()
	drain("web02")
	tab.Thaw()
	missed("a frozen tab", "web02")

	tab.Eval(`Object.defineProperty(document, "hidden", { value: true, configurable: true }); document.dispatchEvent(new Event("visibilitychange")); passed.running += 3.6e6; passed.wall += 3.6e6`)
	tab.Until("a hidden tab lets go", `document.getElementById("link").textContent.includes("paused")`)
	drain("web03")
	tab.Eval(`Object.defineProperty(document, "hidden", { value: false, configurable: true }); document.dispatchEvent(new Event("visibilitychange"))`)
	missed("a hidden tab", "web03")

	// The machine sleeps: its connections die silently, and performance.now() has not advanced when it wakes.
	link.cut()
	drain("web04")
	tab.Eval(`passed.wall += 3.6e6`)
	tab.Until("the page notices it", `!`+linkLive)
	missed("a machine that has slept", "web04")

	tab.Eval(`passed.wall -= 36e6`)
	tab.Until("the page is live with a clock that was set back", linkLive)
}

// relay forwards connections from an address of this machine's loopback to an address inside of the balancer's host.
type relay struct {
	address string
	mu      sync.Mutex
	// whole is closed when the present connections die silently.
	whole chan struct{}
}

// cut stops all present connections from carrying data. They stay open.
func (r *relay) cut() {
	r.mu.Lock()
	defer r.mu.Unlock()
	close(r.whole)
	r.whole = make(chan struct{})
}

func (s *dashboardLab) relay(t *testing.T, to string) *relay {
	t.Helper()
	listener, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { listener.Close() })
	r := &relay{address: listener.Addr().String(), whole: make(chan struct{})}
	go func() {
		for {
			near, err := listener.Accept()
			if err != nil {
				return
			}
			var far net.Conn
			if s.host.Do(func() (err error) {
				far, err = net.DialTimeout("tcp", to, e2e.WaitLimit)
				return err
			}) != nil {
				near.Close()
				continue
			}
			r.mu.Lock()
			whole := r.whole
			r.mu.Unlock()
			go copyUntil(t, far, near, whole)
			go copyUntil(t, near, far, whole)
		}
	}()
	return r
}

// copyUntil copies from a connection to another until that ends, and copies nothing after whole is closed.
func copyUntil(t *testing.T, to, from net.Conn, whole <-chan struct{}) {
	defer to.Close()
	for part := make([]byte, 64<<10); ; {
		n, err := from.Read(part)
		select {
		case <-whole:
			<-t.Context().Done()
			return
		default:
		}
		if _, wrong := to.Write(part[:n]); wrong != nil || err != nil {
			return
		}
	}
}
