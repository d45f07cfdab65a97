// SPDX-License-Identifier: Apache-2.0

package rules

import (
	"encoding/json"
	"flag"
	"net/netip"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"

	"github.com/jeoul/jeoul/internal/balancer/lb"
	"github.com/jeoul/jeoul/internal/balancer/ops"
	"github.com/jeoul/jeoul/internal/host/bpfhost"
	"github.com/jeoul/jeoul/internal/host/drops"
	"github.com/jeoul/jeoul/internal/tools/doctor/evidence"
	"github.com/jeoul/jeoul/internal/tools/tune"
)

var update = flag.Bool("update", false, "write the golden files anew")

// TestRecorded derives findings from evidence of a laboratory with deliberate faults: testdata/FAULT-HOST.json, which
// `go test ./cmd/jeoul -run TestDoctorNamesFaults -update` records. The first finding must be the fault.
func TestRecorded(t *testing.T) {
	first := map[string]string{
		"full-listen-queue": listenQueueFull, "conntrack-table-full": conntrackFull,
		"neighbour-failing": neighbourFailed,
		"rp-filter-drop":    reversePath, "wrong-MAC": wrongMAC, "missing-VIP": vipMissing, "ARP-answered": vipAnswered,
		"tiny-softnet-backlog": softnetBacklog, "exhausted-ports": portsExhausted, "MTU-black-hole": mtuBlackHole,
		"slow-backend": backendSlow, "port-that-a-filter-drops": filterDrops, "healthy": "",
	}
	files, err := filepath.Glob("testdata/*.json")
	if err != nil || len(files) == 0 {
		t.Fatal("no recordings", err)
	}
	used := map[string]bool{}
	for _, file := range files {
		t.Run(filepath.Base(file), func(t *testing.T) {
			text, err := os.ReadFile(file)
			if err != nil {
				t.Fatal(err)
			}
			var e evidence.Evidence
			if err := json.Unmarshal(text, &e); err != nil {
				t.Fatal(err)
			}
			findings := Findings(&e)
			got := ""
			if len(findings) > 0 {
				got = findings[0].Kind
			}
			for fault, kind := range first {
				if strings.HasPrefix(filepath.Base(file), fault) {
					used[fault] = true
					if got != kind {
						t.Errorf("the first finding is %q, want %q", got, kind)
					}
				}
			}
			golden(t, strings.TrimSuffix(file, ".json")+".golden", findings)
		})
	}
	for fault := range first {
		if !used[fault] {
			t.Errorf("no recording of %s", fault)
		}
	}
}

// golden compares findings with a file.
func golden(t *testing.T, file string, findings []Finding) {
	t.Helper()
	got, err := json.MarshalIndent(findings, "", "  ")
	if err != nil {
		t.Fatal(err)
	}
	got = append(got, '\n')
	if *update {
		if err := os.WriteFile(file, got, 0o644); err != nil {
			t.Fatal(err)
		}
	}
	want, err := os.ReadFile(file)
	if err != nil {
		t.Fatal(err)
	}
	if diff := cmp.Diff(string(want), string(got)); diff != "" {
		t.Errorf("findings (-want +got):\n%s", diff)
	}
}

// counters returns evidence of counters that grew from 0.
func counters(after map[string]uint64) *evidence.Evidence {
	return &evidence.Evidence{Seconds: 10, Traced: true, Machine: true, After: evidence.Reading{Protocols: after}}
}

// narrowed returns evidence of a path with an MTU of 1300 bytes, reported by a router or configured.
func narrowed(narrow bool) *evidence.Evidence {
	status := &ops.Status{PID: 1,
		Services: []ops.Service{{Name: "web",
			Backends: []ops.Backend{{Name: "web01", State: lb.Up, MTU: 1300, Narrow: narrow}}}}}
	return &evidence.Evidence{Seconds: 3, Before: evidence.Reading{Balancer: status},
		After: evidence.Reading{Balancer: status}}
}

// attempts returns evidence of attempts to send by IPv6 without a route, on a host with these addresses.
func attempts(addresses ...string) *evidence.Evidence {
	e := counters(map[string]uint64{"Ip6OutNoRoutes": 50})
	l := evidence.Link{Name: "eth0", Index: 2, Up: true}
	for _, a := range addresses {
		l.Addresses = append(l.Addresses, netip.MustParsePrefix(a))
	}
	e.After.Links = []evidence.Link{l}
	return e
}

// silent returns evidence of a backend that answered none of four connections, while some packets were not reported.
func silent(lost uint64) *evidence.Evidence {
	return &evidence.Evidence{Seconds: 3, Flows: evidence.Flows{Packets: 100, Lost: lost,
		Backends: []evidence.BackendTiming{{Name: "web/web01", Service: "web", Opened: 4, Silent: 4}}}}
}

// failing returns evidence of a backend in a state whose health checks fail.
func failing(state lb.BackendState) *evidence.Evidence {
	status := &ops.Status{PID: 1, Services: []ops.Service{{Name: "web",
		Backends: []ops.Backend{{Name: "web01", State: state, Health: &ops.Health{State: lb.Failing}}}}}}
	return &evidence.Evidence{Seconds: 3, Before: evidence.Reading{Balancer: status},
		After: evidence.Reading{Balancer: status}}
}

// repeated returns evidence of a SYN that was repeated a number of times.
func repeated(times int) *evidence.Evidence {
	return &evidence.Evidence{Seconds: 3,
		Flows: evidence.Flows{Backends: []evidence.BackendTiming{{Name: "web/web01", Service: "web", Opened: 1, Silent: 1,
			Repeats: times}}}}
}

// TestRules has the faults without a recording, and evidence that is no fault.
func TestRules(t *testing.T) {
	stack := func(reason string, packets uint64) drops.Drop {
		return drops.Drop{Source: drops.Stack, Reason: reason, Function: "f", Packets: packets, Interface: 2}
	}
	link := func(change func(*evidence.Link)) *evidence.Evidence {
		l := evidence.Link{Name: "eth0", Index: 2, Watched: true, Up: true, RxPackets: 1000, TxPackets: 1000, QdiscSent: 1000,
			Driver: map[string]uint64{}}
		e := &evidence.Evidence{Seconds: 10, Machine: true,
			Before: evidence.Reading{Links: []evidence.Link{{Name: "eth0", Index: 2, Watched: true}}}}
		change(&l)
		e.After.Links = []evidence.Link{l}
		return e
	}
	cores := func(machine bool, busy evidence.CPU) *evidence.Evidence {
		e := &evidence.Evidence{Seconds: 10, Traced: true, Machine: machine,
			Before: evidence.Reading{CPUs: []evidence.CPU{{Index: 0}, {Index: 1}}}}
		busy.Index, busy.Total = 1, 10
		e.After.CPUs = []evidence.CPU{{Index: 0, Processed: 100, Total: 10}, busy}
		return e
	}
	table := func(before, after evidence.Conntrack) *evidence.Evidence {
		return &evidence.Evidence{Seconds: 10, Before: evidence.Reading{Conntrack: &before},
			After: evidence.Reading{Conntrack: &after}}
	}
	ports := func(reuse bool, d evidence.Destination) *evidence.Evidence {
		return &evidence.Evidence{Seconds: 10,
			After: evidence.Reading{Sockets: &evidence.Sockets{
				Ports:        evidence.PortRange{First: 1000, Last: 1099, Reuse: reuse},
				Destinations: []evidence.Destination{d}}}}
	}
	balanced := func(outcome string, packets uint64) *evidence.Evidence {
		return &evidence.Evidence{Seconds: 10, Before: evidence.Reading{Balancer: &ops.Status{PID: 1}},
			After: evidence.Reading{Balancer: &ops.Status{PID: 1,
				Outcomes: []ops.Outcome{{Name: outcome, Packets: packets, Help: "h"}}}}}
	}
	filtered := func(to string, status *ops.Status, vips ...netip.Prefix) *evidence.Evidence {
		d := stack("NETFILTER_DROP", 5)
		at := netip.MustParseAddrPort(to)
		d.Example = &drops.Flow{Source: netip.MustParseAddr("198.51.100.1"), Destination: at.Addr(), Protocol: uint8(lb.TCP),
			DestinationPort: at.Port()}
		return &evidence.Evidence{Seconds: 10, Drops: []drops.Drop{d}, Before: evidence.Reading{Balancer: status,
			Links: []evidence.Link{{Name: "lo", Addresses: append(vips, netip.MustParsePrefix("127.0.0.1/8"))}}}}
	}
	web := &ops.Status{Services: []ops.Service{{VIP: netip.MustParseAddr("192.0.2.1"), Port: 80, Protocol: lb.TCP}}}
	for _, c := range []struct {
		name     string
		evidence *evidence.Evidence
		want     []string
	}{
		{"a filter on a backend", filtered("192.0.2.1:80", nil, netip.MustParsePrefix("192.0.2.1/32")), []string{filterDrops}},
		{"a filter that keeps others out", filtered("192.0.2.9:22", nil, netip.MustParsePrefix("192.0.2.1/32")), nil},
		{"a filter on a balancer", filtered("192.0.2.1:80", web), []string{filterDrops}},
		{"a port of no service", filtered("192.0.2.1:22", web), nil},
		{"nothing", &evidence.Evidence{Seconds: 10}, nil},
		{"a counter began anew",
			&evidence.Evidence{Seconds: 10, Before: evidence.Reading{Protocols: map[string]uint64{"TcpExtListenOverflows": 9}}}, nil},
		{"memory", counters(map[string]uint64{"TcpExtTCPMemoryPressures": 1}), []string{tcpMemory}},
		{"a slow DNS server", counters(map[string]uint64{"UdpRcvbufErrors": 12}), []string{socketBuffer}},
		{"cookies", counters(map[string]uint64{"TcpExtSyncookiesSent": 5}), []string{synCookies}},
		{"TIME-WAIT", counters(map[string]uint64{"TcpExtTCPTimeWaitOverflow": 5}), []string{timeWaitFull}},
		{"a name server that tries IPv6, on a host without", attempts("192.0.2.1/24", "fe80::1/64", "::1/128"), nil},
		{"no route, on a host with IPv6", attempts("192.0.2.1/24", "2001:db8::1/64"), []string{noRoute}},
		{"no route, on a host with a VIP of IPv6", attempts("192.0.2.1/24", "2001:db8::100/128"), []string{noRoute}},
		{"no route", counters(map[string]uint64{"IpOutNoRoutes": 5}), []string{noRoute}},
		{"checksums", counters(map[string]uint64{"TcpInCsumErrors": 5}), []string{checksums}},
		{"a checksum", counters(map[string]uint64{"TcpInCsumErrors": 1}), nil},
		{"retransmits", counters(map[string]uint64{"TcpRetransSegs": 20, "TcpOutSegs": 1000}), []string{retransmits}},
		{"few retransmits", counters(map[string]uint64{"TcpRetransSegs": 20, "TcpOutSegs": 100000}), nil},
		{"the cause first",
			counters(map[string]uint64{"TcpRetransSegs": 20, "TcpOutSegs": 1000, "TcpExtTCPTimeWaitOverflow": 1,
				"TcpExtListenOverflows": 1}),
			[]string{listenQueueFull, timeWaitFull, retransmits}},
		{"missed", link(func(l *evidence.Link) { l.RxMissed = 1 }), []string{nicDrops}},
		{"by the driver", link(func(l *evidence.Link) { l.Driver["rx_no_buffer_count"] = 4 }), []string{nicDrops}},
		{"dropped on purpose", link(func(l *evidence.Link) { l.Driver["rx_queue_0_xdp_drops"] = 400 }), nil},
		{"unknown protocols", link(func(l *evidence.Link) { l.RxDropped = 1 }), nil},
		{"many of them", link(func(l *evidence.Link) { l.RxDropped = 100 }), []string{nicDrops}},
		{"XDP by the driver", link(func(l *evidence.Link) { l.Driver["tx_queue_0_xdp_xmit_errors"] = 4 }),
			[]string{xdpFailures}},
		{"queue", link(func(l *evidence.Link) { l.QdiscDrops = 10 }), []string{qdiscDrops}},
		{"one queue of four", link(func(l *evidence.Link) {
			l.Driver = map[string]uint64{"rx_queue_0_packets": 20000, "rx_queue_1_packets": 10,
				"rx_queue_2_packets": 10, "rx_queue_3_packets": 10}
		}), []string{unevenQueues}},
		{"four queues", link(func(l *evidence.Link) {
			l.Driver = map[string]uint64{"rx-0.packets": 5000, "rx-1.packets": 6000, "rx-2.packets": 4000,
				"rx-3.packets": 7000}
		}), nil},
		{"XDP by the kernel",
			&evidence.Evidence{Seconds: 10,
				Drops: []drops.Drop{{Source: drops.XDPTransmit, Reason: "ENXIO", Packets: 3, Interface: 2}}},
			[]string{xdpFailures}},
		{"a kernel without BTF", &evidence.Evidence{Seconds: 10, Lacks: []bpfhost.MissingFeature{{Feature: "the kernel has no BTF"}}},
			[]string{kernelLacks}},
		{"backlog", cores(true, evidence.CPU{Dropped: 3}), []string{softnetBacklog}},
		{"another container's backlog", cores(false, evidence.CPU{Dropped: 3}), nil},
		{"squeezed", cores(true, evidence.CPU{Squeezed: 5000}), []string{softnetSqueezed}},
		{"one core", cores(true, evidence.CPU{Softirq: 9.8}), []string{busyCore}},
		{"tracked twice", table(evidence.Conntrack{Limit: 100}, evidence.Conntrack{Limit: 100, Entries: 5, InsertFailed: 7}),
			[]string{conntrackInsert}},
		{"table full", table(evidence.Conntrack{Limit: 100}, evidence.Conntrack{Limit: 100, Entries: 99, Drop: 7}),
			[]string{conntrackFull}},
		{"ports", ports(false, evidence.Destination{Ports: 99, TimeWait: 90}), []string{portsExhausted}},
		{"ports used again", ports(true, evidence.Destination{Ports: 99, TimeWait: 90}), nil},
		{"a reason that no rule knows", &evidence.Evidence{Seconds: 10, Drops: []drops.Drop{stack("VXLAN_VNI_NOT_FOUND", 500)}},
			[]string{otherDrops}},
		{"a few of it", &evidence.Evidence{Seconds: 10, Drops: []drops.Drop{stack("VXLAN_VNI_NOT_FOUND", 5)}}, nil},
		{"harmless reasons",
			&evidence.Evidence{Seconds: 10, Drops: []drops.Drop{stack("NO_SOCKET", 500), stack("NOT_SPECIFIED", 500)}}, nil},
		{"a limit", balanced("dropped_rate_limit", 100), []string{balancerDrops}},
		{"a limit with resets", balanced("reset_rate_limit", 100), []string{balancerDrops}},
		{"a limit of datagrams", balanced("unreachable_rate_limit", 100), []string{balancerDrops}},
		{"a loop, by its last hops", balanced("answered_time_exceeded", manyExpired), []string{forwardingLoop}},
		{"a traceroute", balanced("answered_time_exceeded", 3), nil},
		{"a loop, by its SYN", repeated(manyRepeats), []string{forwardingLoop}},
		{"a SYN that is sent again", repeated(5), nil},
		{"a silent backend", silent(1), []string{backendSilent}},
		{"a silent backend, but packets that were not reported", silent(50), nil},
		{"a failing backend", failing(lb.Unhealthy), []string{backendUnhealthy}},
		{"a backend that is disabled, and fails", failing(lb.Out), nil},
		{"a narrow router", narrowed(true), []string{narrowPath}},
		{"a narrow link", narrowed(false), nil},
		{"passed", balanced("passed_no_service", 100), nil},
		{"no room for neighbours", &evidence.Evidence{Seconds: 10, Machine: true, After: evidence.Reading{TableFulls: 3}},
			[]string{neighbourTable}},
		{"a ping to no host, long ago",
			&evidence.Evidence{Seconds: 10, Traced: true,
				After: evidence.Reading{Neighbours: []evidence.Neighbour{{State: "FAILED", Since: 900}}}}, nil},
		{"hanging", &evidence.Evidence{Seconds: 10,
			After: evidence.Reading{Sockets: &evidence.Sockets{
				Ports: evidence.PortRange{First: 1, Last: 9}, Established: 4,
				Hanging: []evidence.Hanging{{Timeouts: 3, MSS: 1448}, {Timeouts: 3, MSS: 1448},
					{Timeouts: 3, MSS: 1448, Acknowledged: 99999}}}}}, []string{connectionsHang}},
	} {
		t.Run(c.name, func(t *testing.T) {
			var got []string
			for _, f := range Findings(c.evidence) {
				got = append(got, f.Kind)
				if len(f.Seen) == 0 || f.Title == "" || f.Means == "" || len(f.Remedies) == 0 {
					t.Errorf("a finding that says too little: %+v", f)
				}
			}
			if !slices.Equal(got, c.want) {
				t.Errorf("found %v, want %v", got, c.want)
			}
		})
	}
}

// TestKinds checks that every fault has all texts, a unique name, and remedies that `jeoul tune` has.
func TestKinds(t *testing.T) {
	profile, err := tune.Load("")
	if err != nil {
		t.Fatal(err)
	}
	for _, k := range kinds {
		for _, c := range k.remedies {
			known := slices.ContainsFunc(profile.Items, func(i tune.Item) bool { return i.ID == c.Tune })
			if c.Tune != "" && !known || c.Do == "" {
				t.Errorf("%s: cure %+v, which tune does not have", k.id, c)
			}
		}
	}
	seen := map[string]bool{}
	for _, k := range kinds {
		if seen[k.id] || k.means == "" || len(k.remedies) == 0 || !slices.Contains(harms, k.harm) {
			t.Errorf("kind %+v", k)
		}
		seen[k.id] = true
	}
	if len(Kinds()) != len(kinds) {
		t.Error("kinds are missing from the list")
	}
}
