// SPDX-License-Identifier: Apache-2.0

package control

import (
	"context"
	"errors"
	"fmt"
	"net/netip"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"github.com/google/go-cmp/cmp"

	"github.com/jeoul/jeoul/internal/balancer/config"
	"github.com/jeoul/jeoul/internal/balancer/lb"
	"github.com/jeoul/jeoul/internal/balancer/paths"
)

func TestReload(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		w, c, stop := running(t, web, "192.0.2.1", "192.0.2.2")
		w.found("192.0.2.3", 3)
		w.found("2001:db8::1", 4)
		time.Sleep(settleDelay)
		result := w.reload(c, strings.NewReplacer("192.0.2.100", "192.0.2.101", "192.0.2.2}",
			"192.0.2.3}").Replace(web)+dns)
		if err := finished(t, result); err != nil {
			t.Fatal(err)
		}
		w.expect(
			"watch 192.0.2.1 192.0.2.2 192.0.2.3 2001:db8::1",
			"add 192.0.2.101",
			"add 2001:db8::53",
			"apply web: web01=1 web02=3 dns: dns01=4",
			"remove 192.0.2.100",
			"watch 192.0.2.1 192.0.2.3 2001:db8::1",
			"announce 192.0.2.101 on eth9",
			"announce 2001:db8::53 on eth9",
		)
		status, err := c.Status()
		if err != nil || len(status.Services) != 2 || len(status.Problems) != 0 {
			t.Errorf("status %+v, %v", status, err)
		}
		stop()
	})
}

// TestReloadWaits: the old backends serve until the new ones are found.
func TestReloadWaits(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		w, c, stop := running(t, web, "192.0.2.1", "192.0.2.2")
		result := w.reload(c, strings.NewReplacer("192.0.2.1}", "192.0.2.11}", "192.0.2.2}",
			"192.0.2.12}").Replace(web))
		w.expect("watch 192.0.2.1 192.0.2.2 192.0.2.11 192.0.2.12")
		w.found("192.0.2.11", 11)
		w.found("192.0.2.2", 0)
		time.Sleep(settleDelay)
		w.expect("apply web: web01=1 web02=-") // the old configuration is followed meanwhile
		w.found("192.0.2.12", 12)
		time.Sleep(settleDelay)
		if err := finished(t, result); err != nil {
			t.Fatal(err)
		}
		w.expect("apply web: web01=11 web02=12", "watch 192.0.2.11 192.0.2.12", "announce 192.0.2.100 on eth9")
		stop()
	})
}

// TestReloadWaitsNoLonger: a backend that does not answer does not hold a reload up.
func TestReloadWaitsNoLonger(t *testing.T) {
	tests := map[string]func(*world){
		"silent": func(*world) { time.Sleep(resolveBound) },
		"failed": func(w *world) {
			w.found("192.0.2.11", 0)
			time.Sleep(settleDelay)
		},
	}
	for name, wait := range tests {
		t.Run(name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				w, c, stop := running(t, web)
				result := w.reload(c, strings.ReplaceAll(web, "192.0.2.1}", "192.0.2.11}"))
				wait(w)
				if err := finished(t, result); err != nil {
					t.Fatal(err)
				}
				w.expect("watch 192.0.2.1 192.0.2.2 192.0.2.11", "apply web: web01=- web02=-",
					"watch 192.0.2.11 192.0.2.2", "announce 192.0.2.100 on eth9")
				stop()
			})
		})
	}
}

// members is a section that all members have alike.
const members = "members: {listen: '192.0.2.10:7946', peers: [192.0.2.11], key_file: /etc/key}"

// TestReloadOfMembers: peers and the key's file change while the balancer runs; the name by which other members know
// this one, and the address on which it listens, only with a restart.
func TestReloadOfMembers(t *testing.T) {
	read := func(section string) *config.Config {
		t.Helper()
		cfg, err := config.Parse("f", []byte(section+web))
		if err != nil {
			t.Fatal(err)
		}
		return cfg
	}
	before := read(members)
	for _, test := range [][3]string{
		{"peers: [192.0.2.11]", "peers: [192.0.2.12, 192.0.2.13]", ""},
		{"/etc/key", "/etc/other", ""},
		{"7946", "7950", "members.listen: changed from 192.0.2.10:7946 to 192.0.2.10:7950"},
		{"listen", "name: lb1, listen", "members.name: changed from the host's to lb1"},
		{"listen", "hand_over: false, listen", "members.hand_over: changed from true to false"},
		{"listen", "flows_port: 9000, listen", "members.flows_port: changed from 7947 to 9000"},
	} {
		var got []string
		for _, problem := range checkReload(before, read(strings.Replace(members, test[0], test[1], 1))) {
			text, rest, _ := strings.Cut(strings.TrimPrefix(problem.Error(), "f:1: "), ", which")
			if got = append(got, text); rest != " takes a restart; nothing of the file was applied" {
				t.Errorf("%s: %v", test[1], problem)
			}
		}
		if strings.Join(got, ", ") != test[2] {
			t.Errorf("%s: %v, want %s", test[1], got, test[2])
		}
	}
	if problems := checkReload(before, read("")); len(problems) != 1 ||
		!strings.Contains(problems[0].Error(), "members: changed from 192.0.2.10:7946 to none") {
		t.Errorf("without members: %v", problems)
	}
}

// TestReloadOfProgram: the HAProxy that runs goes on over reloads and restarts, so only a stop replaces its program.
func TestReloadOfProgram(t *testing.T) {
	const proxied, program = web + shopProxied, "proxy: {program: /opt/haproxy/sbin/haproxy}"
	for _, c := range []struct{ before, after, want string }{
		{proxied, program + proxied, "f:1: proxy.program: changed from the installed one to /opt/haproxy/sbin/haproxy, which takes a stop and a start (systemctl stop jeoul, systemctl start jeoul); nothing of the file was applied"},
		{program + proxied, program + proxied, ""},
		{web, program + proxied, ""},
		{proxied, program + web, ""},
	} {
		var got string
		if err := checkReload(parse(t, c.before), parse(t, c.after)).Err(); err != nil {
			got = err.Error()
		}
		if got != c.want {
			t.Errorf("%q, want %q", got, c.want)
		}
	}
}

func TestReloadRefused(t *testing.T) {
	restart := func(field, from, to string) string {
		return "f:1: " + field + ": changed from " + from + " to " + to +
			", which takes a restart; nothing of the file was applied"
	}
	union := "watch 192.0.2.1 192.0.2.2 2001:db8::1"
	tests := map[string]struct {
		change func(*world)
		file   string
		want   string
		did    []string
	}{
		"flows":    {nil, "flows: {unproven: 5000}" + web, restart("flows.unproven", "262144", "5000"), nil},
		"not YAML": {nil, "interface: [", "f:1: not YAML: did not find expected node content", nil},
		"interface": {nil, strings.ReplaceAll(web, "\ninterface: eth9", "interface: eth0"),
			"f:1: interface: interface \"eth0\": no such interface: `ip link` lists those there are", nil},
		"socket": {nil, "socket: /tmp/s" + web, restart("socket", "/run/jeoul/jeoul.sock", "/tmp/s"), nil},
		"metrics": {nil, "metrics: {listen: '192.0.2.9:9533'}" + web,
			restart("metrics.listen", "none", "192.0.2.9:9533"), nil},
		"survive": {nil, "survive: never" + web, restart("survive", "auto", "never"), nil},
		"members": {nil, members + web, restart("members", "none", "192.0.2.10:7946"), nil},
		"cgroup":  {nil, "local: {cgroup: /missing}" + web, "f:1: local.cgroup: /missing: no control group", nil},
		"own address": {func(w *world) {
			w.routed("192.0.2.254", paths.Route{Fault: paths.OwnAddress, Reason: "is ours", Advice: "use another"})
		}, strings.ReplaceAll(web, "192.0.2.2}", "192.0.2.254}"),
			"f:9: services[0].backends[1].address: 192.0.2.254 is ours; use another", nil},
		"watch": {func(w *world) { w.watchErr = errors.New("no rights") }, web + dns,
			"look for the backends: no rights", []string{union}},
		"add": {func(w *world) { w.addErr[netip.MustParseAddr("2001:db8::53")] = errors.New("IPv6 is off") }, web + dns,
			"IPv6 is off",
			[]string{union, "fail to add 2001:db8::53", started[0]}},
		"too large": {func(w *world) { w.applyErr = fmt.Errorf("%w: flows.limit: 5 would fit", lb.ErrTooLarge) }, web,
			"f:2: not enough memory: flows.limit: 5 would fit",
			[]string{started[0], "fail to apply web: web01=- web02=-", started[0]}},
		"apply": {func(w *world) { w.applyErr = errors.New("no memory") }, web + dns, "no memory",
			[]string{union, "add 2001:db8::53", "fail to apply web: web01=- web02=- dns: dns01=-",
				"remove 2001:db8::53", started[0]}},
	}
	for name, test := range tests {
		t.Run(name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				w := newWorld(t)
				c := w.controller(web)
				stop := w.run(c)
				w.found("2001:db8::1", 0)
				w.quiet()
				before, err := c.Status()
				if err != nil {
					t.Fatal(err)
				}
				if test.change != nil {
					test.change(w)
				}
				err = finished(t, w.reload(c, test.file))
				if err == nil || err.Error() != test.want {
					t.Errorf("error (-want +got):\n%s", cmp.Diff(test.want, err.Error()))
				}
				w.expect(test.did...)
				after, err := c.Status()
				if err != nil {
					t.Fatal(err)
				}
				if problems := strings.Join(after.Problems, "\n"); !strings.Contains(problems,
					"was refused, and nothing of it applied: "+test.want) {
					t.Errorf("problems %q", after.Problems)
				}
				after.Problems = before.Problems
				if diff := cmp.Diff(before, after, cmp.Comparer(func(a, b netip.Addr) bool {
					return a == b
				})); diff != "" {
					t.Errorf("status before and after:\n%s", diff)
				}
				stop()
			})
		})
	}
}

func TestReloadMendsARefusedOne(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		w, c, stop := running(t, web, "192.0.2.1")
		if err := finished(t, w.reload(c, "x")); err == nil {
			t.Fatal("no error")
		}
		w.mustReload(c, web)
		expectProblems(t, c)
		stop()
	})
}

func TestReloadCutShort(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		w := newWorld(t)
		c := w.controller(web)
		stop := w.run(c)
		result := w.reload(c, web+dns) // waits for dns01
		synctest.Wait()
		if err := stop(); err != nil {
			t.Error(err)
		}
		if err := finished(t, result); !errors.Is(err, ErrStopped) {
			t.Errorf("error = %v, want ErrStopped", err)
		}
		if err := finished(t, w.reload(c, web)); !errors.Is(err, ErrStopped) {
			t.Errorf("error = %v, want ErrStopped", err)
		}
	})
}

func TestReloadGivenUp(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		w := newWorld(t)
		c := w.controller(web)
		stop := w.run(c)
		ctx, cancel := context.WithCancel(t.Context())
		result := make(chan error, 1)
		go func() {
			result <- c.Reload(ctx, func() (*config.Config, error) { return config.Parse("f", []byte(web+dns)) })
		}()
		synctest.Wait()
		cancel()
		if err := finished(t, result); !errors.Is(err, context.Canceled) {
			t.Errorf("error = %v, want context.Canceled", err)
		}
		time.Sleep(resolveBound)
		synctest.Wait()
		if status, err := c.Status(); err != nil || len(status.Services) != 2 {
			t.Errorf("services %+v, %v", status.Services, err)
		}
		stop()
	})
}

// TestReloadHook: the data plane gets another hook, and the hooks in use are logged. Where it refuses, all is as
// before.
func TestReloadHook(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		w, c, stop := running(t, web)
		w.moves = map[lb.Hook]lb.Attachment{lb.HookXDP: {Interface: "eth9", Hook: lb.HookXDP, Reason: "as asked",
			Warning: "eth9 may lose frames"}}
		w.mustReload(c, "hook: xdp"+web)
		if w.state.Hook != lb.HookXDP {
			t.Errorf("the data plane was asked for the hook %q", w.state.Hook)
		}
		w.expectLog("balancing on eth9 in xdp (native)", "as asked")
		w.expectLog("WARN", "eth9 may lose frames")
		w.failApply(errors.New("its driver refuses"))
		if err := finished(t, w.reload(c, "hook: tc"+web)); err == nil ||
			!strings.Contains(err.Error(), "its driver refuses") {
			t.Errorf("a hook that is refused: %v", err)
		}
		w.failApply(nil)
		// Later changes are for the hook that is in use.
		w.found("192.0.2.1", 1)
		time.Sleep(settleDelay)
		synctest.Wait()
		if w.state.Hook != lb.HookXDP {
			t.Errorf("after a refused reload the data plane was asked for the hook %q", w.state.Hook)
		}
		stop()
	})
}

// TestReloadLocal: the control group that the check has found is the data plane's, and none where none is
// asked for.
func TestReloadLocal(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		w, c, stop := running(t, web)
		for _, local := range []struct{ written, want string }{
			{"local: true", "/cgroup"}, {"local: {cgroup: /cgroup/a}", "/cgroup/a"}, {"local: {}", "/cgroup"},
			{"local: false", ""},
		} {
			w.mustReload(c, local.written+web)
			if w.state.Local != local.want {
				t.Errorf("%s: the data plane was given the control group %q", local.written, w.state.Local)
			}
			// Later changes are for the same sockets.
			w.found("192.0.2.1", 1+byte(len(local.want)))
			time.Sleep(settleDelay)
			synctest.Wait()
			if w.state.Local != local.want {
				t.Errorf("%s: after a change the data plane was given the control group %q", local.written,
					w.state.Local)
			}
		}
		stop()
	})
}

// TestReloadTableSize: tables of another size take no restart.
func TestReloadTableSize(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		w, c, stop := running(t, web)
		w.mustReload(c, "table_size: 4099"+web)
		if size := w.state.Services[0].TableSize; size != 4099 {
			t.Errorf("the table has %d slots, want 4099", size)
		}
		stop()
	})
}
