// SPDX-License-Identifier: Apache-2.0

package main

import (
	"maps"
	"net"
	"net/netip"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"

	"github.com/vishvananda/netlink"

	"github.com/jeoul/jeoul/cmd/jeoul/cmdtest"
	"github.com/jeoul/jeoul/cmd/jeoul/e2e"
	"github.com/jeoul/jeoul/internal/balancer/api"
	"github.com/jeoul/jeoul/internal/balancer/lb"
	"github.com/jeoul/jeoul/internal/balancer/ops"
	"github.com/jeoul/jeoul/internal/test/testenv"
	"github.com/jeoul/jeoul/internal/weigh/lab"
)

// memberBalancer is a balancer on a host with other members.
type memberBalancer struct {
	*balancer
	key string
}

// configureMember gives it backends, with weights, and a key.
func (m *memberBalancer) configureMember(t *testing.T, l *lab.Lab, key string, weights ...int) {
	t.Helper()
	var backends []entry
	for i, server := range l.Servers {
		backends = append(backends, entry{"name": server.Name, "address": server.IPv4.String(), "weight": weights[i]})
	}
	m.configure(t, lb.HookTC, entry{
		"members":  m.among(t, l, key),
		"services": []entry{{"name": "web", "vip": "198.18.0.105", "port": 80, "backends": backends}}})
}

// freshKey is a key from `jeoul members key`.
func freshKey(t *testing.T, host *lab.Host) string {
	t.Helper()
	var out cmdtest.SyncBuffer
	if err := jeoul(t, host, &out, "members", "key").Wait(); err != nil {
		t.Fatal(err)
	}
	return out.String()
}

// hasMember reports whether a status has a member in a state, and how many services of it differ for longer than a
// change takes.
func hasMember(status *ops.Status, name string, state ops.MemberState, differ int) bool {
	return status.Members != nil && slices.ContainsFunc(status.Members.Members, func(m ops.Member) bool {
		lasting := slices.DeleteFunc(slices.Clone(m.Differs), func(d ops.Difference) bool { return !d.Lasting })
		return m.Name == name && m.State == state && len(lasting) == differ && (m.Ready || state != ops.MemberAlive)
	})
}

// TestMembers: two balancers with one configuration have equal digests; one gets another weight, which the other
// reports until it is undone; a third has another key and is refused.
func TestMembers(t *testing.T) {
	t.Parallel()
	l := newLab(t, lab.Spec{Clients: 2, Servers: 2})
	key := freshKey(t, l.Balancer)
	one, other, keyless := &memberBalancer{balancer: newBalancer(t, l.Balancer)},
		&memberBalancer{balancer: newBalancer(t, l.Clients[0])}, &memberBalancer{balancer: newBalancer(t, l.Clients[1])}
	one.configureMember(t, l, key, 1, 1)
	other.configureMember(t, l, key, 1, 1)
	keyless.configureMember(t, l, freshKey(t, l.Balancer), 1, 1)
	for _, m := range []*memberBalancer{one, other, keyless} {
		m.start(t)
		t.Cleanup(func() { stop(t, m.daemon) })
	}
	name := other.host.Name
	digest := ""
	one.eventually(t, "the first has the second's state", func(status *ops.Status) bool {
		digest = status.Services[0].TableDigest
		return hasMember(status, name, ops.MemberAlive, 0)
	})
	other.eventually(t, "the second's digest is the first's", func(status *ops.Status) bool {
		return digest != "" && status.Services[0].TableDigest == digest
	})
	keyless.eventually(t, "the third says that it has another key", func(status *ops.Status) bool {
		return slices.ContainsFunc(status.Problems, func(p string) bool {
			return strings.Contains(p, "it has another key")
		})
	})

	other.configureMember(t, l, key, 1, 3)
	other.sendSIGHUP(t)
	one.eventually(t, "the first warns of the second", func(status *ops.Status) bool {
		return hasMember(status, name, ops.MemberAlive, 1) &&
			slices.ContainsFunc(status.Problems, func(p string) bool {
				return strings.HasPrefix(p, "member "+name+" sends new flows of service web to other backends: "+
					l.Servers[1].IPv4.String()+":80 has weight 1 here and 3")
			})
	})
	var out cmdtest.SyncBuffer
	if err := jeoul(t, one.host, &out, "get", "members", "--socket", one.socket).Wait(); err != nil ||
		!strings.Contains(out.String(), "web") {
		t.Errorf("jeoul get members: %v\n%s", err, out.String())
	}
	other.configureMember(t, l, key, 1, 1)
	other.sendSIGHUP(t)
	one.eventually(t, "it is over", func(status *ops.Status) bool { return hasMember(status, name, ops.MemberAlive, 0) })

	kill(t, other.daemon)
	other.start(t)
	one.eventually(t, "the second is back as another process", func(status *ops.Status) bool {
		return hasMember(status, name, ops.MemberAlive, 0)
	})
	if refused := strings.Count(one.log.String(), "refused what "+keyless.host.IPv4.String()+" sends"); refused != 1 {
		t.Errorf("the first says %d times that it refuses the third", refused)
	}
	testenv.Eventually(t, e2e.WaitLimit, "the first says that it is over", func() bool {
		return strings.Contains(one.log.String(), "sends new flows of service web to the same backends again")
	})
}

// threeMembers returns balancers on the laboratory's own host and its first two clients, which can be members with a
// key, with servers that answer; the third client is their client.
func threeMembers(t *testing.T) (l *lab.Lab, key string, one, other, third *memberBalancer) {
	t.Helper()
	l = newLab(t, lab.Spec{Clients: 3, Servers: 2})
	key = freshKey(t, l.Balancer)
	on := func(host *lab.Host) *memberBalancer { return &memberBalancer{balancer: newBalancer(t, host)} }
	one, other, third = on(l.Balancer), on(l.Clients[0]), on(l.Clients[1])
	for _, server := range l.Servers {
		(&segment{l, one.balancer}).serve(t, server)
	}
	return l, key, one, other, third
}

// TestMembersChange: a third balancer becomes a member while the others run, by a reload at each. One of them hands its
// flows over to it, and it continues their connections. After it has left the configurations, it is no longer a member,
// and the others lose nothing.
func TestMembersChange(t *testing.T) {
	testenv.Target(t, matrixTarget)
	t.Parallel()
	l, key, one, other, third := threeMembers(t)
	among := func(m *memberBalancer, change entry, peers ...*memberBalancer) {
		section := m.among(t, l, key)
		list := []string{}
		for _, p := range peers {
			list = append(list, p.host.IPv4.String())
		}
		section["peers"] = list
		maps.Copy(section, change)
		m.configureAmong(t, l, lb.HookTC, section, nil)
	}
	for _, m := range []*memberBalancer{one, other} {
		among(m, nil, one, other)
		m.start(t)
		t.Cleanup(func() { stop(t, m.daemon) })
	}
	client := l.Clients[2]
	on := openThrough(t, client, l, one, other)

	// A reload does not change the settings by which the others identify this one, and then changes nothing else of
	// that file.
	for field, value := range map[string]any{"name": "another", "flows_port": 9000} {
		among(one, entry{field: value}, one, other, third)
		if _, err := api.NewClient(one.socket).Reload(t.Context()); err == nil ||
			!strings.Contains(err.Error(), "members."+field+": changed from ") ||
			!strings.Contains(err.Error(), "takes a restart") {
			t.Errorf("a reload with another %s: %v", field, err)
		}
	}
	among(third, nil, one, other, third)
	third.start(t)
	t.Cleanup(func() { stop(t, third.daemon) })
	for _, m := range []*memberBalancer{one, other} {
		among(m, nil, one, other, third)
		if _, err := api.NewClient(m.socket).Reload(t.Context()); err != nil {
			t.Fatal(err)
		}
	}
	third.eventually(t, "the third has the flows, of whichever tells of them first", func(status *ops.Status) bool {
		of, _ := handedFlows(status, one.host.Name)
		ofOther, _ := handedFlows(status, other.host.Name)
		return of+ofOther >= uint64(len(on))
	})
	sendBy(t, client, l.VIP4, third.host)
	goOn := func(when string) {
		t.Helper()
		for connection, server := range on {
			if got, _, err := ask(connection); err != nil || got != server {
				t.Errorf("%s, a connection to %s was answered by %q: %v", when, server, got, err)
			}
		}
	}
	goOn("through the third")

	sendBy(t, client, l.VIP4, one.host)
	for _, m := range []*memberBalancer{one, other} {
		among(m, nil, one, other)
		if _, err := api.NewClient(m.socket).Reload(t.Context()); err != nil {
			t.Fatal(err)
		}
	}
	for _, m := range []*memberBalancer{one, other} {
		members, err := api.NewClient(m.socket).Members(t.Context())
		if err != nil || len(members.Members) != 1 || members.Members[0].State != ops.MemberAlive ||
			!members.Members[0].Flows.Sending {
			t.Errorf("after the third was let go, %s has the members %+v, %v", m.host.Name, members.Members, err)
		}
		if strings.Contains(m.log.String(), "not reached any more") {
			t.Errorf("%s has lost a member:\n%s", m.host.Name, m.log.String())
		}
	}
	third.eventually(t, "no flows are sent to the third", func(status *ops.Status) bool {
		_, both := handedFlows(status, one.host.Name)
		return !both
	})
	goOn("without the third")
}

// TestMembersRotateKeys: three balancers get another key by the documented steps, by a reload at each, while
// connections of the scheduler by turns begin and continue through another balancer each time. No member is missed, a
// premature step is refused, and finally the old key is refused.
func TestMembersRotateKeys(t *testing.T) {
	testenv.Target(t, matrixTarget)
	t.Parallel()
	l := newLab(t, lab.Spec{Clients: 4, Servers: 2})
	old, fresh := freshKey(t, l.Balancer), freshKey(t, l.Balancer)
	hosts := []*lab.Host{l.Balancer, l.Clients[0], l.Clients[1], l.Clients[2]}
	var all []*memberBalancer
	for _, host := range hosts {
		all = append(all, &memberBalancer{balancer: newBalancer(t, host)})
	}
	outdated, client := all[3], l.Clients[3]
	all = all[:3]
	for _, server := range l.Servers {
		(&segment{l, all[0].balancer}).serve(t, server)
	}
	among := func(m *memberBalancer, keys string) {
		section, peers := m.among(t, l, keys), []string{}
		for _, host := range hosts {
			peers = append(peers, host.IPv4.String())
		}
		section["peers"] = peers
		m.configureAmong(t, l, lb.HookTC, section, nil)
	}
	for _, m := range all {
		among(m, old)
		m.start(t)
		t.Cleanup(func() { stop(t, m.daemon) })
	}
	// whole waits until each balancer has every other one, with a number of accepted keys, and sends it flows.
	whole := func(keys int) {
		t.Helper()
		for _, m := range all {
			m.eventually(t, "each knows each other, and their keys", func(status *ops.Status) bool {
				for _, other := range all {
					if _, both := handedFlows(status, other.host.Name); other != m && !both {
						return false
					}
				}
				return !slices.ContainsFunc(status.Members.Members, func(one ops.Member) bool {
					return one.Name != "" && (one.State != ops.MemberAlive || one.Configuration == "" ||
						!slices.Equal(one.Keys, status.Members.Keys) || len(one.Keys) != keys)
				}) && len(status.Members.Keys) == keys && allUp(status)
			})
		}
	}
	on := map[net.Conn]string{}
	goOn := func(step int) {
		t.Helper()
		from, to := all[step%3], all[(step+1)%3]
		sendBy(t, client, l.VIP4, from.host)
		begun := openSome(t, client, l)
		maps.Copy(on, begun)
		to.eventually(t, "the other has the flows", func(status *ops.Status) bool {
			flows, err := api.NewClient(to.socket).Flows(t.Context(), ops.FlowQuery{Limit: ops.DefaultFlows})
			return err == nil && !slices.ContainsFunc(slices.Collect(maps.Keys(on)), func(c net.Conn) bool {
				return !slices.ContainsFunc(flows.Flows, func(f ops.Flow) bool {
					return f.Client.String() == c.LocalAddr().String()
				})
			})
		})
		sendBy(t, client, l.VIP4, to.host)
		for connection, server := range on {
			if got, _, err := ask(connection); err != nil || got != server {
				t.Errorf("in step %d through %s, a connection to %s was answered by %q: %v", step, to.host.Name,
					server, got, err)
			}
		}
	}
	whole(1)
	goOn(0)
	among(all[1], fresh)
	if _, err := api.NewClient(all[1].socket).Reload(t.Context()); err == nil ||
		!strings.Contains(err.Error(), "members.key_file: a member would be cut off: ") {
		t.Errorf("a reload with a key that no other member has: %v", err)
	}
	for i, keys := range []string{old + fresh, fresh + old, fresh} {
		for _, m := range all {
			among(m, keys)
			if _, err := api.NewClient(m.socket).Reload(t.Context()); err != nil {
				t.Fatalf("step %d at %s: %v", i+1, m.host.Name, err)
			}
			goOn(i + 1)
		}
		whole(strings.Count(keys, "\n"))
	}
	among(outdated, old)
	outdated.start(t)
	t.Cleanup(func() { stop(t, outdated.daemon) })
	outdated.eventually(t, "one with the old key says so", func(status *ops.Status) bool {
		return slices.ContainsFunc(status.Problems, func(p string) bool {
			return strings.Contains(p, "it has another key")
		})
	})
	goOn(0)
	for _, m := range all {
		var shown cmdtest.SyncBuffer
		if err := jeoul(t, m.host, &shown, "get", "members", "-o", "json", "--socket", m.socket).Wait(); err != nil {
			t.Fatal(err)
		}
		for _, text := range []string{m.log.String(), shown.String()} {
			if strings.Contains(text, "not reached any more") {
				t.Errorf("%s has missed a member:\n%s", m.host.Name, text)
			}
			for _, key := range []string{old, fresh} {
				if strings.Contains(text, strings.TrimSpace(key)) {
					t.Errorf("%s shows a key:\n%s", m.host.Name, text)
				}
			}
		}
	}
}

// handedFlows returns the number of flows that a balancer has of a member, and whether both send flows to each other.
func handedFlows(status *ops.Status, name string) (flows uint64, both bool) {
	if status.Members == nil {
		return 0, false
	}
	for _, m := range status.Members.Members {
		if m.Name == name && m.Flows != nil {
			return m.Flows.Added, m.Flows.Sending && m.Flows.Receiving
		}
	}
	return 0, false
}

// TestConnectionsOutliveABalancer: connections of the scheduler by turns, whose backends only their balancer has,
// continue through another member when that balancer is gone.
func TestConnectionsOutliveABalancer(t *testing.T) {
	t.Parallel()
	forAHook(t, func(t *testing.T, hook lb.Hook) {
		l := newLab(t, lab.Spec{Clients: 2, Servers: 3})
		key := freshKey(t, l.Balancer)
		one, other := &memberBalancer{balancer: newBalancer(t, l.Balancer)}, &memberBalancer{balancer: newBalancer(t,
			l.Clients[0])}
		for _, server := range l.Servers {
			(&segment{l, one.balancer}).serve(t, server)
		}
		for _, m := range []*memberBalancer{one, other} {
			m.configureTurns(t, l, hook, key)
			m.start(t)
			t.Cleanup(func() { stop(t, m.daemon) })
		}
		client := l.Clients[1]
		on := openThrough(t, client, l, one, other)
		goOn := func(through *memberBalancer) {
			sendBy(t, client, l.VIP4, through.host)
			for connection, server := range on {
				if got, _, err := ask(connection); err != nil || got != server {
					t.Errorf("through %s, a connection to %s was answered by %q: %v", through.host.Name,
						server, got, err)
				}
			}
		}
		kill(t, one.daemon)
		goOn(other)
		// It comes back without any state, and is sent all flows.
		var out cmdtest.SyncBuffer
		if err := jeoul(t, one.host, &out, "detach", "-c", one.config).Wait(); err != nil {
			t.Fatal(err, out.String())
		}
		one.start(t)
		one.awaitFlows(t, len(on))
		goOn(one)
	})
}

// TestFullNATOutlivesABalancer: connections of full NAT, whose backends answer an address of the balancer that began
// them, continue through another member when that balancer is gone and the address leads to the other one, and when it
// is back.
func TestFullNATOutlivesABalancer(t *testing.T) {
	testenv.Target(t, matrixTarget)
	t.Parallel()
	forAHook(t, func(t *testing.T, hook lb.Hook) {
		l := newLab(t, lab.Spec{Clients: 2, Servers: 3})
		key := freshKey(t, l.Balancer)
		one, other := &memberBalancer{balancer: newBalancer(t, l.Balancer)}, &memberBalancer{balancer: newBalancer(t,
			l.Clients[0])}
		pools := map[*memberBalancer]netip.Addr{one: netip.MustParseAddr("198.18.0.98"),
			other: netip.MustParseAddr("198.18.0.99")}
		var backends, pool []entry
		for _, server := range l.Servers {
			(&segment{l, one.balancer}).serve(t, server)
			backends = append(backends, entry{"name": server.Name, "address": server.IPv4.String(), "port": turnPort})
		}
		for _, m := range []*memberBalancer{one, other} {
			pool = append(pool, entry{"address": pools[m].String(), "member": m.host.IPv4.String()})
		}
		for _, m := range []*memberBalancer{one, other} {
			m.configure(t, hook, entry{"members": m.among(t, l, key), "fullnat": entry{"addresses": pool},
				"services": []entry{{"name": "web", "vip": l.VIP4.String(), "port": turnPort, "mode": "fullnat",
					"scheduler": "rr", "backends": backends}}})
			m.start(t)
			t.Cleanup(func() { stop(t, m.daemon) })
		}
		client := l.Clients[1]
		// leads sends the client's packets to one balancer, and the replies to the first one's address to another.
		leads := func(packets, replies *memberBalancer) {
			sendBy(t, client, l.VIP4, packets.host)
			for _, server := range l.Servers {
				sendBy(t, server, pools[one], replies.host)
			}
		}
		leads(one, one)
		on := openThrough(t, client, l, one, other)
		goesOn := func(when string, packets, replies *memberBalancer) {
			leads(packets, replies)
			for connection, server := range on {
				if got, _, err := ask(connection); err != nil || got != server {
					t.Errorf("%s, a connection to %s was answered by %q: %v", when, server, got, err)
				}
			}
		}
		goesOn("with packets and replies at two balancers", other, one)
		kill(t, one.daemon)
		var out cmdtest.SyncBuffer
		if err := jeoul(t, one.host, &out, "detach", "-c", one.config).Wait(); err != nil {
			t.Fatal(err, out.String())
		}
		goesOn("without the first", other, other)
		one.start(t)
		one.awaitFlows(t, len(on))
		goesOn("with the first back", one, one)
		goesOn("with replies at the second", one, other)
	})
}

// openThrough opens connections through a balancer, once it sends flows to another, and waits until the other has them.
// It returns them with the server that answers each.
func openThrough(t *testing.T, client *lab.Host, l *lab.Lab, one, other *memberBalancer) map[net.Conn]string {
	t.Helper()
	for _, pair := range [][2]*memberBalancer{{one, other}, {other, one}} {
		pair[0].eventually(t, "each tells the other of flows", func(status *ops.Status) bool {
			_, both := handedFlows(status, pair[1].host.Name)
			return both && allUp(status)
		})
	}
	sendBy(t, client, l.VIP4, one.host)
	on := openSome(t, client, l)
	other.awaitFlows(t, len(on))
	return on
}

// openSome opens connections to the service, and returns them with the server that answers each.
func openSome(t *testing.T, client *lab.Host, l *lab.Lab) map[net.Conn]string {
	t.Helper()
	on, err := tryToOpenSome(t, client, l)
	if err != nil {
		t.Fatal(err)
	}
	return on
}

// tryToOpenSome is openSome, and returns the error of a connection that is not answered.
func tryToOpenSome(t *testing.T, client *lab.Host, l *lab.Lab) (map[net.Conn]string, error) {
	t.Helper()
	on := map[net.Conn]string{}
	for range 12 {
		connection := dial(t, client, "tcp", netip.AddrPortFrom(l.VIP4, turnPort))
		server, _, err := ask(connection)
		if err != nil {
			return nil, err
		}
		on[connection] = server
	}
	return on, nil
}

// awaitFlows waits until it has received a number of flows of other balancers. With more than two, a flow may come
// first from one that has received it itself.
func (m *memberBalancer) awaitFlows(t *testing.T, n int) {
	t.Helper()
	m.eventually(t, m.host.Name+" has the flows of the others", func(status *ops.Status) bool {
		return takenFlows(status) >= uint64(n)
	})
}

// takenFlows returns the number of flows that a balancer has received from all of its members.
func takenFlows(status *ops.Status) (flows uint64) {
	if status.Members == nil {
		return 0
	}
	for _, m := range status.Members.Members {
		if m.Flows != nil {
			flows += m.Flows.Added
		}
	}
	return flows
}

// configureTurns gives it a service that takes turns, and a key.
func (m *memberBalancer) configureTurns(t *testing.T, l *lab.Lab, hook lb.Hook, key string) {
	t.Helper()
	m.configureAmong(t, l, hook, m.among(t, l, key), nil)
}

// configureAmong gives it a service that takes turns, its members' configuration, and the rest of its file.
func (m *memberBalancer) configureAmong(t *testing.T, l *lab.Lab, hook lb.Hook, members, beside entry) {
	t.Helper()
	var backends []entry
	for _, server := range l.Servers {
		backends = append(backends, entry{"name": server.Name, "address": server.IPv4.String()})
	}
	configuration := entry{"members": members,
		"services": []entry{{"name": "web", "vip": l.VIP4.String(), "port": turnPort, "scheduler": "rr",
			"backends": backends}}}
	maps.Copy(configuration, beside)
	m.configure(t, hook, configuration)
}

// among writes the key, and returns the configuration of the members.
func (m *memberBalancer) among(t *testing.T, l *lab.Lab, key string) entry {
	t.Helper()
	m.key = filepath.Join(m.host.Dir, "members.key")
	if err := os.WriteFile(m.key, []byte(key), 0o600); err != nil {
		t.Fatal(err)
	}
	return entry{"listen": netip.AddrPortFrom(m.host.IPv4, lb.DefaultMembersPort).String(), "key_file": m.key,
		"name":  m.host.Name,
		"peers": []string{l.Balancer.IPv4.String(), l.Clients[0].IPv4.String(), l.Clients[1].IPv4.String()}}
}

// sendBy makes a client send packets for a VIP to one of the hosts that have it.
func sendBy(t *testing.T, client *lab.Host, vip netip.Addr, by *lab.Host) {
	t.Helper()
	err := client.Do(func() error {
		link, err := netlink.LinkByName(client.Interface)
		if err != nil {
			return err
		}
		return netlink.NeighSet(&netlink.Neigh{LinkIndex: link.Attrs().Index, IP: vip.AsSlice(),
			State: netlink.NUD_PERMANENT, HardwareAddr: by.MAC})
	})
	if err != nil {
		t.Fatal(err)
	}
}
