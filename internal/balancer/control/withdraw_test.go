// SPDX-License-Identifier: Apache-2.0

package control

import (
	"strings"
	"testing"
	"testing/synctest"
	"time"
)

// yieldingWeb has two services of one VIP, which is withdrawn while neither has a backend that
// serves, and one of another VIP, which stays.
const yieldingWeb = `
interface: eth9
services:
  - name: web
    vip: 192.0.2.100
    port: 80
    check: {type: tcp, via: address}
    on_empty: withdraw
    backends:
      - {name: web01, address: 192.0.2.1}
      - {name: web02, address: 192.0.2.2}
  - name: tls
    vip: 192.0.2.100
    port: 443
    check: {type: tcp, via: address}
    on_empty: withdraw
    backends:
      - {name: tls03, address: 192.0.2.3}
  - name: stays
    vip: 192.0.2.101
    port: 80
    check: {type: tcp, via: address}
    backends:
      - {name: st04, address: 192.0.2.4}
`

// withdrawnServices are those that the status shows as such.
func withdrawnServices(t *testing.T, c *Controller) (names string) {
	t.Helper()
	for _, s := range statusOf(t, c).Services {
		if s.Withdrawn {
			names += s.Name + " "
		}
	}
	return strings.TrimSpace(names)
}

// addressesDone returns the steps since the last call that concern addresses.
func addressesDone(w *world) (did []string) {
	synctest.Wait()
	for _, one := range w.done() {
		if !strings.HasPrefix(one, "apply") {
			did = append(did, one)
		}
	}
	return did
}

func TestVIPIsWithdrawn(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		w, c, asked, stop := runningChecked(t, yieldingWeb)
		expectDone := func(when string, want ...string) {
			t.Helper()
			if did := addressesDone(w); strings.Join(did, "; ") != strings.Join(want, "; ") {
				t.Errorf("%s: did %q, expected %q", when, did, want)
			}
		}
		asked.say(t, c, failing("refuses connections"), "web01", "web02", "st04")
		time.Sleep(settleDelay)
		expectDone("with one service of the VIP that serves")
		asked.say(t, c, failing("refuses connections"), "tls03")
		time.Sleep(settleDelay)
		expectDone("with none", "remove 192.0.2.100")
		w.expectLog("WARN", "no backend serves, so the VIP is withdrawn: 192.0.2.100")
		if names := withdrawnServices(t, c); names != "web tls" {
			t.Errorf("withdrawn by the status: %q", names)
		}
		// A kernel event about the interface does not put a withdrawn VIP back.
		w.changeLink(func() {})
		time.Sleep(time.Minute)
		expectDone("a minute later")
		asked.say(t, c, healthy(), "web02")
		time.Sleep(settleDelay)
		w.expectLog("INFO", "a backend serves, so the VIP is held again: 192.0.2.100")
		did := addressesDone(w)
		if len(did) == 0 || did[0] != "add 192.0.2.100" || !strings.Contains(strings.Join(did, "; "),
			"announce 192.0.2.100 on eth9") {
			t.Errorf("with a backend that serves again: did %q", did)
		}
		if names := withdrawnServices(t, c); names != "" {
			t.Errorf("withdrawn by the status: %q", names)
		}
		time.Sleep(time.Minute)
		addressesDone(w)
		// A drained backend still serves the flows that it has.
		w.mustReload(c, strings.Replace(yieldingWeb, "address: 192.0.2.2}", "address: 192.0.2.2, drain: true}", 1))
		time.Sleep(settleDelay)
		if names := withdrawnServices(t, c); names != "" {
			t.Errorf("with a drained backend, withdrawn by the status: %q", names)
		}
		stop()
	})
}

// TestStartHoldsNoEmptyVIP: none of a VIP's backends answers ARP when the balancer starts.
func TestStartHoldsNoEmptyVIP(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		w := newWorld(t)
		w.answer("192.0.2.4")
		c := w.controller(strings.ReplaceAll(yieldingWeb, "    check: {type: tcp, via: address}\n", ""))
		stop := w.run(c)
		synctest.Wait()
		w.expectLog("WARN", "no backend serves, so the VIP is withdrawn: 192.0.2.100")
		for _, one := range w.done() {
			if strings.Contains(one, "192.0.2.100") {
				t.Errorf("the start did %q", one)
			}
		}
		w.answer("192.0.2.3")
		time.Sleep(time.Minute)
		did := strings.Join(addressesDone(w), "; ")
		if !strings.HasPrefix(did, "add 192.0.2.100; announce 192.0.2.10") {
			t.Errorf("with a backend: did %q", did)
		}
		stop()
	})
}
