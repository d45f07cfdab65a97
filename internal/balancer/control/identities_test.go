// SPDX-License-Identifier: Apache-2.0

package control

import (
	"errors"
	"net"
	"net/netip"
	"slices"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"github.com/google/go-cmp/cmp"

	"github.com/jeoul/jeoul/internal/balancer/lb"
	"github.com/jeoul/jeoul/internal/balancer/paths"
	"github.com/jeoul/jeoul/internal/host/iface"
)

// known is the interfaces by which other balancers of the host know the process.
type known struct {
	*world
	err error
}

func (k *known) Register(link string) error {
	k.mu.Lock()
	defer k.mu.Unlock()
	if k.err != nil {
		k.note("fail to take %s", link)
		return k.err
	}
	k.note("take %s", link)
	return nil
}

func (k *known) Unregister(link string) error {
	k.mu.Lock()
	defer k.mu.Unlock()
	k.note("release %s", link)
	return nil
}

// withInterfaces returns a file with other interfaces.
func withInterfaces(file, names string) string {
	return strings.Replace(file, "interface: eth9", "interfaces: ["+names+"]", 1)
}

// ported is a controller on eth9 of a world that has eth8, too, by which 192.0.2.2 is reached.
func ported(t *testing.T, m lb.Mode) (*world, *Controller, *known) {
	w := newWorld(t)
	w.others = []iface.State{{Name: "eth8", Index: 8, Up: true, MAC: net.HardwareAddr{2, 0, 0, 0, 0, 0xee},
		Subnets: []netip.Prefix{netip.MustParsePrefix("198.51.100.0/24")}}}
	w.routed("192.0.2.2", paths.Route{Interface: "eth8", Index: 8, MTU: 1500,
		Local: netip.MustParseAddr("198.51.100.1")})
	w.found("192.0.2.1", 1)
	w.found("192.0.2.2", 2)
	c, k := w.controller(mode(m)), &known{world: w}
	c.opt.Identity = k
	return w, c, k
}

// TestInterfacesChange adds an interface, makes it the first, and removes the old one.
func TestInterfacesChange(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		w, c, _ := ported(t, lb.NAT)
		stop := w.run(c)
		w.expect("watch 192.0.2.1 192.0.2.2", "apply web: web01=1 web02=-", "add 192.0.2.100", "forward IPv4 on eth9",
			"announce 192.0.2.100 on eth9")
		w.quiet()
		for _, change := range []struct {
			interfaces string
			want       []string
		}{
			{"eth9, eth8", []string{"use eth9 eth8", "watch 192.0.2.1 192.0.2.2", "follow eth9 eth8",
				"forward IPv4 on eth9 eth8",
				"apply web: web01=1 web02=2", "use eth9 eth8", "watch 192.0.2.1 192.0.2.2",
				"announce 192.0.2.100 on eth9"}},
			{"eth8, eth9", []string{"use eth9 eth8", "watch 192.0.2.1 192.0.2.2", "take eth8", "follow eth8 eth9",
				"add 192.0.2.100 on eth8",
				"apply web: web01=1 web02=2", "remove 192.0.2.100", "forward IPv4 on eth8 eth9", "use eth8 eth9",
				"release eth9",
				"watch 192.0.2.1 192.0.2.2", "announce 192.0.2.100 on eth8"}},
			{"eth8", []string{"use eth8 eth9", "watch 192.0.2.1 192.0.2.2", "follow eth8", "apply web: web01=- web02=2",
				"forward IPv4 on eth8", "use eth8", "watch 192.0.2.1 192.0.2.2", "announce 192.0.2.100 on eth8"}},
			{"eth9", []string{"use eth8 eth9", "watch 192.0.2.1 192.0.2.2", "take eth9", "follow eth9",
				"forward IPv4 on eth8 eth9", "add 192.0.2.100",
				"apply web: web01=1 web02=-", "remove 192.0.2.100 on eth8", "forward IPv4 on eth9", "use eth9",
				"release eth8",
				"watch 192.0.2.1 192.0.2.2", "announce 192.0.2.100 on eth9"}},
		} {
			if err := finished(t, w.reload(c, withInterfaces(mode(lb.NAT), change.interfaces))); err != nil {
				t.Fatalf("%s: %v", change.interfaces, err)
			}
			if diff := cmp.Diff(change.want, w.done()); diff != "" {
				t.Errorf("%s: done (-want +got):\n%s", change.interfaces, diff)
			}
			status, err := c.Status()
			if err != nil {
				t.Fatal(err)
			}
			var names []string
			for _, nic := range status.Interfaces {
				names = append(names, nic.Name)
				if nic.Hook.Name != lb.HookTC {
					t.Errorf("%s: status has %+v", change.interfaces, nic)
				}
			}
			if got := strings.Join(names, ", "); got != change.interfaces || status.Interface != names[0] {
				t.Errorf("%s: status has %s, the first %s", change.interfaces, got, status.Interface)
			}
			w.expectLog("balancing on " + change.interfaces)
			w.quiet()
		}
		stop()
	})
}

// TestInterfacesChangeRefused lets each step of a change fail: those before it are undone, the
// last one first, and the balancer goes on where it was.
func TestInterfacesChangeRefused(t *testing.T) {
	refused := errors.New("refused")
	begin := []string{"use eth9 eth8", "watch 192.0.2.1 192.0.2.2"}
	end := []string{"watch 192.0.2.1 192.0.2.2", "use eth9"}
	for name, test := range map[string]struct {
		fail func(*world, *known, error)
		did  []string
	}{
		"identity": {func(_ *world, k *known, err error) { k.err = err }, []string{"fail to take eth8"}},
		"interfaces": {func(w *world, _ *known, err error) { w.followErr = map[string]error{"eth8": err} },
			[]string{"take eth8", "fail to follow eth8", "release eth8"}},
		"forwarding": {func(w *world, _ *known, err error) { w.forwardErr = err },
			[]string{"take eth8", "follow eth8", "fail to forward IPv4", "follow eth9", "release eth8"}},
		"VIPs": {func(w *world, _ *known, err error) {
			w.addErr = map[netip.Addr]error{netip.MustParseAddr("192.0.2.100"): err}
		},
			[]string{"take eth8", "follow eth8", "forward IPv4 on eth9 eth8", "fail to add 192.0.2.100",
				"forward IPv4 on eth9", "follow eth9", "release eth8"}},
		"data plane": {func(w *world, _ *known, err error) { w.applyErr = err },
			[]string{"take eth8", "follow eth8", "forward IPv4 on eth9 eth8", "add 192.0.2.100 on eth8",
				"fail to apply web: web01=- web02=2",
				"remove 192.0.2.100 on eth8", "forward IPv4 on eth9", "follow eth9", "release eth8"}},
	} {
		t.Run(name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				w, c, k := ported(t, lb.NAT)
				stop := w.run(c)
				w.quiet()
				test.fail(w, k, refused)
				err := finished(t, w.reload(c, withInterfaces(mode(lb.NAT), "eth8")))
				if err == nil || !strings.Contains(err.Error(), "interfaces: refused; eth9 goes on serving") {
					t.Errorf("the error is %v", err)
				}
				if diff := cmp.Diff(slices.Concat(begin, test.did, end), w.done()); diff != "" {
					t.Errorf("done (-want +got):\n%s", diff)
				}
				test.fail(w, k, nil)
				status, err := c.Status()
				if err != nil || status.Interface != "eth9" || len(status.Interfaces) != 1 {
					t.Errorf("status %+v, %v", status.Interfaces, err)
				}
				// It goes on as it was, and a later reload can change them.
				w.found("192.0.2.1", 7)
				time.Sleep(settleDelay)
				w.expect("apply web: web01=7 web02=-")
				if err := finished(t, w.reload(c, withInterfaces(mode(lb.NAT), "eth8"))); err != nil {
					t.Error(err)
				}
				stop()
			})
		})
	}
}

// TestInterfacesAreTried: while a reload looks for backends by an interface to come, the
// configuration in force does not send packets there.
func TestInterfacesAreTried(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		w, c, _ := ported(t, lb.NAT)
		stop := w.run(c)
		w.quiet()
		result := w.reload(c, withInterfaces(strings.ReplaceAll(mode(lb.NAT), "192.0.2.1}", "192.0.2.11}"),
			"eth9, eth8"))
		synctest.Wait()
		w.found("192.0.2.2", 3)
		time.Sleep(settleDelay)
		w.expect("use eth9 eth8", "watch 192.0.2.1 192.0.2.2 192.0.2.11")
		w.found("192.0.2.11", 11)
		time.Sleep(settleDelay)
		if err := finished(t, result); err != nil {
			t.Fatal(err)
		}
		if did := w.done(); !slices.Contains(did, "apply web: web01=11 web02=3") {
			t.Errorf("done %q", did)
		}
		stop()
	})
}
