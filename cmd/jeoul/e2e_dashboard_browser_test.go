// SPDX-License-Identifier: Apache-2.0

package main

import (
	"context"
	"crypto/x509/pkix"
	"encoding/json"
	"fmt"
	"io"
	"net"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/jeoul/jeoul/cmd/jeoul/e2e"
	"github.com/jeoul/jeoul/internal/balancer/api/access"
	"github.com/jeoul/jeoul/internal/balancer/ops"
	"github.com/jeoul/jeoul/internal/test/testbrowser"
	"github.com/jeoul/jeoul/internal/test/testcert"
	"github.com/jeoul/jeoul/internal/test/testenv"
)

// dashboardTarget is the target that runs the tests with a browser.
const dashboardTarget = "test-dashboard"

// showing opens the dashboard and waits until it is live.
func showing(t *testing.T, url string) *testbrowser.Tab {
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

// linkLive is true while the page has its link to the balancer.
const linkLive = `document.getElementById("link").textContent.includes("live")`

// row is the row of a backend, as an expression.
func row(backend string) string {
	return fmt.Sprintf(`document.querySelector('[data-key="b %s"]')`, backend)
}

// TestDashboardInBrowser looks at a live laboratory as a person does.
func TestDashboardInBrowser(t *testing.T) {
	testenv.Target(t, dashboardTarget)
	s := newWatched(t, entry{})
	ctx, end := context.WithCancel(t.Context())
	t.Cleanup(end)
	web := s.ask(t, ctx, "web", 40)
	tab := showing(t, s.url)
	t.Run("a killed backend turns down", func(t *testing.T) {
		tab.Until("web02 is up", row("web/web02")+`.textContent.includes("up")`)
		s.patients[s.Servers[1].Name].close(t)
		tab.Until("web02 is unhealthy", row("web/web02")+`.textContent.includes("unhealthy")`)
		s.patients[s.Servers[1].Name].open(t)
		tab.Until("web02 is up again", row("web/web02")+`.querySelector(".pill").textContent.includes("up")`)
	})
	t.Run("a drain by click takes effect", func(t *testing.T) { s.drainByClick(t, tab, web) })
	t.Run("the page survives a restart", func(t *testing.T) {
		kill(t, s.daemon)
		tab.Until("the page says that the balancer is gone", `document.getElementById("link").textContent.includes("not reached")`)
		s.daemon = jeoul(t, s.host, &s.log, s.arguments()...)
		tab.Until("the page is live again", linkLive+` && `+row("web/web03")+`.textContent.includes("draining")`)
		leave(t, s.daemon)
		s.daemon = jeoul(t, s.host, &s.log, s.arguments()...)
		s.eventually(t, "the daemon answers", func(*ops.Status) bool { return true })
		pid := s.status(t).PID
		tab.Until("the page shows the next process", linkLive)
		tab.Eval(`location.hash = "#/balancer"`)
		tab.Until("the page shows the next process", fmt.Sprintf(`document.querySelector("main").textContent.includes("%d")`, pid))
	})
	t.Run("markup stays text", func(t *testing.T) { markupStaysText(t, tab) })
	t.Run("axe-core finds no error", func(t *testing.T) { accessible(t, tab) })
	if dir := os.Getenv("JEOUL_TEST_PICTURES"); dir != "" {
		s.pictures(t, ctx, tab, dir)
	}
	end()
	stop(t, s.daemon)
}

// drainByClick drains web03 as a person does, and waits until clients get none of its answers any more.
func (s *watched) drainByClick(t *testing.T, tab *testbrowser.Tab, web *answers) {
	tab.Click(`[data-key="b web/web03"] [data-act="change"]`)
	tab.Click(`dialog input[value="drain"]`)
	tab.Until("it is said what will be", `document.querySelector("dialog .says").textContent.includes("no new connection")`)
	tab.Click(`dialog button[type="submit"]`)
	tab.Until("it is done", `document.querySelector("dialog").textContent.includes("Done")`)
	tab.Click(`dialog [data-act="dismiss"]`)
	tab.Until("web03 is draining", row("web/web03")+`.textContent.includes("draining")`)
	web.more(t, 5) // what was on its way
	before, _ := web.of(s.Servers[2].Name)
	web.more(t, 60)
	if after, _ := web.of(s.Servers[2].Name); after != before {
		t.Errorf("the drained backend got %d new connections", after-before)
	}
}

// markupStaysText has names and texts with markup come from the balancer.
func markupStaysText(t *testing.T, tab *testbrowser.Tab) {
	const markup = `<img id="made" src="x" onerror="document.title = 'run'"><b>bold</b>`
	tab.Eval(`location.hash = "#/events"`)
	tab.Eval(fmt.Sprintf(`import("/dashboard/model.js").then(({ model }) => model.tell({ id: "x-1", at: new Date().toISOString(), level: "info",
		kind: %[1]q, service: %[1]q, backend: %[1]q, by: %[1]q, message: %[1]q }))`, markup))
	tab.Until("the text is shown as it is", fmt.Sprintf("document.querySelector('.events').textContent.includes(%q)", markup))
	if made := tab.Eval(`document.getElementById("made") !== null || document.title === "run"`); string(made) != "false" {
		t.Error("the text became an element")
	}
}

// accessible looks at every view by axe-core, in light and in dark, in a wide and in a narrow window.
func accessible(t *testing.T, tab *testbrowser.Tab) {
	script, err := os.ReadFile(filepath.Join("..", "..", "internal", "test", "testbrowser", "axe", "axe.min.js"))
	if err != nil {
		t.Fatal(err)
	}
	tab.Eval(string(script) + "; 0")
	for _, window := range []struct {
		width, height int
		dark          bool
	}{{1440, 900, false}, {1440, 900, true}, {390, 844, false}} {
		tab.Window(window.width, window.height, window.dark)
		for _, view := range []string{"services", "service/shop", "service/shop/shop01", "drops", "limits", "balancer", "events"} {
			tab.Eval(fmt.Sprintf("location.hash = %q", "#/"+view))
			tab.Until("the view is there", `document.querySelector("main").children.length > 0`)
			var found []string
			text := tab.Eval(`axe.run(document).then((r) => r.violations.map((v) => v.id + ": " + v.help + " " + v.nodes.slice(0, 3).map((n) => n.html).join(" ")))`)
			if err := json.Unmarshal(text, &found); err != nil {
				t.Fatal(err)
			}
			if len(found) > 0 {
				t.Errorf("%s, %+v: %s", view, window, strings.Join(found, "\n"))
			}
		}
	}
	tab.Window(1440, 900, false)
	tab.Eval(`location.hash = "#/services"`)
}

// pictures writes those of docs/guides/dashboard.md.
func (s *watched) pictures(t *testing.T, ctx context.Context, tab *testbrowser.Tab, dir string) {
	s.ask(t, ctx, "shop", 60)
	s.ask(t, ctx, "mail", 25)
	s.patients[s.Servers[3].Name].close(t)
	select {
	case <-time.After(90 * time.Second): // Charts are to have something to show.
	case <-ctx.Done():
		return
	}
	for _, p := range []struct {
		name, view    string
		width, height int
		dark          bool
	}{{"light", "services", 1440, 860, false}, {"dark", "service/shop", 1440, 860, true}, {"phone", "services", 390, 844, false}} {
		tab.Window(p.width, p.height, p.dark)
		tab.Eval(fmt.Sprintf("location.hash = %q; new Promise((r) => setTimeout(r, 3000))", "#/"+p.view))
		if err := os.WriteFile(filepath.Join(dir, "dashboard-"+p.name+".png"), tab.Picture(), 0o644); err != nil {
			t.Fatal(err)
		}
	}
}

// TestDashboardOverTCP opens the page that the balancer serves itself. The page says that a token with the role read
// may not change backends, and the balancer refuses its changes with the reason.
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
	s := newWatched(t, entry{"api": entry{"listen": "127.0.0.1:9540", "certificate": path("crt"), "key": path("key"), "tokens": path("tokens")}})
	tab := testbrowser.Open(t, "https://"+s.relay(t, "127.0.0.1:9540")+"/")
	tab.Type("#token", "wrong")
	tab.Click(`form button[type="submit"]`)
	tab.Until("a wrong token is refused", `document.querySelector(".login") && document.body.textContent.includes("unknown")`)
	tab.Type("#token", secret)
	tab.Click(`form button[type="submit"]`)
	tab.Until("the page is live", linkLive)
	tab.Click(`[data-key="b web/web01"] [data-act="change"]`)
	tab.Click(`dialog input[value="drain"]`)
	tab.Until("it is said that one may only look", `document.querySelector("dialog").textContent.includes("token viewer has the role read")`)
	tab.Click(`dialog button[type="submit"]`)
	tab.Until("the balancer refuses it, and says why", `document.querySelector("dialog").textContent.includes("this needs operate")`)
	if state := stateNow(s.status(t), "web/web01"); state != "up" {
		t.Errorf("web01 is %s", state)
	}
	if faults := tab.Faults(); len(faults) > 0 {
		t.Errorf("the page has done wrong: %q", faults)
	}
	stop(t, s.daemon)
}

// relay leads from an address of this machine's loopback to one inside of the balancer's host.
func (s *watched) relay(t *testing.T, to string) string {
	t.Helper()
	listener, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { listener.Close() })
	go func() {
		for {
			near, err := listener.Accept()
			if err != nil {
				return
			}
			var far net.Conn
			if s.host.Do(func() (err error) { far, err = net.DialTimeout("tcp", to, e2e.Patience); return err }) != nil {
				near.Close()
				continue
			}
			go func() { _, _ = io.Copy(far, near); far.Close() }()
			go func() { _, _ = io.Copy(near, far); near.Close() }()
		}
	}()
	return listener.Addr().String()
}
