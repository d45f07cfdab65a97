// SPDX-License-Identifier: Apache-2.0

package datapath

import (
	"encoding/binary"
	"errors"
	"net/netip"
	"os"
	"slices"
	"strings"
	"sync/atomic"
	"testing"

	"github.com/cilium/ebpf"
	"golang.org/x/sys/unix"

	"github.com/jeoul/jeoul/internal/balancer/datapath/generation"
	"github.com/jeoul/jeoul/internal/balancer/datapath/keeper"
	"github.com/jeoul/jeoul/internal/balancer/datapath/mapmem"
	"github.com/jeoul/jeoul/internal/balancer/datapath/objects"
	"github.com/jeoul/jeoul/internal/balancer/datapath/pins"
	"github.com/jeoul/jeoul/internal/balancer/datapath/snapshot"
	"github.com/jeoul/jeoul/internal/balancer/lb"
	"github.com/jeoul/jeoul/internal/test/testenv"
)

// asAnotherBuild rewrites the snapshot of a data plane as a build with other layouts of maps and another order of
// outcomes would have written it.
func asAnotherBuild(d *Datapath, maps []string, reorder func([]string)) error {
	return rewriteSnapshot(d, func(s *snapshot.Snapshot) {
		for _, name := range maps {
			s.Layouts[name] = "another"
		}
		reorder(s.Outcomes)
	})
}

// rewriteSnapshot changes the snapshot of a data plane.
func rewriteSnapshot(d *Datapath, change func(*snapshot.Snapshot)) error {
	path := d.keeper.File(d.keeper.Number)
	data, err := os.ReadFile(path)
	if err != nil {
		return err
	}
	s, err := snapshot.Decode(data)
	if err != nil {
		return err
	}
	change(s)
	var lines [][]byte
	for i := range s.Services {
		line, err := s.Services[i].Line()
		if err != nil {
			return err
		}
		lines = append(lines, line)
	}
	parts, err := snapshot.Encode(s.Head, lines)
	if err != nil {
		return err
	}
	return os.WriteFile(path, parts.Bytes(), 0o600)
}

// TestKeptByAnotherBuild takes over the data plane of a build with other layouts of maps: flows stay, counters are
// carried by their names and never fall, before the programs are exchanged and after, and over the next restart.
func TestKeptByAnotherBuild(t *testing.T) {
	testenv.Root(t)
	testenv.In(t, newNICs(t), func() error {
		k := newRestartRig(t)
		first, err := k.open()
		if err != nil {
			return err
		}
		state := testState()
		tracked := slices.IndexFunc(state.Services, func(s lb.RoutedService) bool {
			return s.Scheduler == lb.RoundRobin
		})
		state.Services[tracked].Limits.Connections = 1000
		if err := first.Apply(state); err != nil {
			return err
		}
		is := first.register.Records[tracked]
		flow := objects.XDPFlow{Port: 7, Service: is.ID, Backend: is.Places[0].Index,
			Generation: is.Places[0].Generation}
		if !first.shared.Proven.Insert(flow, objects.XDPFlowStateFLOW_ESTABLISHED, first.janitor.Now()) {
			t.Fatal("no room for a flow")
		}
		cpus, err := ebpf.PossibleCPU()
		if err != nil {
			return err
		}
		// In the old order: the other build has them under their neighbour's name.
		const one, other = objects.XDPOutcomeOUTCOME_DROPPED_MALFORMED, objects.XDPOutcomeOUTCOME_DROPPED_FRAGMENT
		count := func(m *ebpf.Map, o objects.XDPOutcome, n uint64) {
			t.Helper()
			perCPU := make([]uint64, cpus)
			perCPU[0] = n
			if err := m.Put(uint32(o), perCPU); err != nil {
				t.Fatal(err)
			}
		}
		expect := func(d *Datapath, when string, ones, others uint64) {
			t.Helper()
			counters, err := d.Counters()
			if err != nil {
				t.Fatal(err)
			}
			if a, b := counters.Outcomes[one].Packets, counters.Outcomes[other].Packets; a != ones || b != others {
				t.Errorf("%s, the counters are %d and %d, want %d and %d", when, a, b, ones, others)
			}
		}
		count(first.shared.Outcomes, one, 5)
		count(first.shared.Outcomes, other, 7)
		if err := asAnotherBuild(first, []string{objects.XDPMapOutcomes, objects.XDPMapTurns, objects.XDPMapLoads,
			objects.XDPMapWays, objects.XDPMapFragments, objects.XDPMapAllowances}, func(names []string) {
			names[one], names[other] = names[other], names[one]
		}); err != nil {
			return err
		}
		if err := first.Release(); err != nil {
			return err
		}

		second, err := k.open()
		if err != nil {
			return err
		}
		if !second.Adopted() || !strings.Contains(strings.Join(second.Notes(), " "), "made anew") {
			t.Fatalf("it was not taken over: %q", second.Notes())
		}
		expect(second, "before the programs are exchanged", 7, 5)
		// The old program goes on counting until then.
		count(second.ledger.Previous.Map, one, 6)
		if turn := mapmem.ElementsOf[objects.XDPTurn](second.shared.Turn(is.ID))[0]; turn.Cap != 1000 {
			t.Errorf("before the programs are exchanged, the bound of connections is %d", turn.Cap)
		}
		if err := second.Apply(state); err != nil {
			return err
		}
		count(second.shared.Outcomes, one, 100)
		expect(second, "after the programs were exchanged", 107, 6)
		if _, there := second.shared.Proven.Find(&flow); !there {
			t.Error("a flow is forgotten")
		}
		turn := &mapmem.ElementsOf[objects.XDPTurn](second.shared.Turn(is.ID))[0]
		if active := atomic.LoadUint32(&turn.Active); active != 1 {
			t.Errorf("active flows of its service: %d, want 1", active)
		}
		if err := second.Release(); err != nil {
			return err
		}
		third, err := k.open()
		if err != nil {
			return err
		}
		defer third.Close()
		expect(third, "after the next restart", 107, 6)
		return nil
	})
}

// pinInPlaceOf pins another map in the place of one of the data plane's.
func pinInPlaceOf(d *Datapath, name string, spec *ebpf.MapSpec) (*ebpf.Map, error) {
	m, err := ebpf.NewMap(spec)
	if err != nil {
		return nil, err
	}
	path := d.keeper.Store.Path(pins.Set(d.current.Set), name)
	if err := errors.Join(os.Remove(path), (keeper.MapPin{Map: m}).PinCopy(path)); err != nil {
		return nil, errors.Join(err, m.Close())
	}
	return m, nil
}

// TestKeptCountersOfAnotherLayout takes over counters of backends, and destinations that stay untranslated, in another
// build's layout: both stay, before the programs are exchanged, after, and over a kill right after that.
func TestKeptCountersOfAnotherLayout(t *testing.T) {
	testenv.Root(t)
	testenv.In(t, newNICs(t), func() error {
		k := newRestartRig(t)
		first, err := k.open()
		if err != nil {
			return err
		}
		nat := testService(netip.MustParseAddr("192.0.2.77"), 77, lb.TCP, lb.Maglev, 3)
		nat.Mode = lb.NAT
		nat.Untranslated = []netip.Prefix{netip.MustParsePrefix("10.9.0.0/16"), netip.MustParsePrefix("2001:2:9::/48")}
		state := lb.State{Services: []lb.RoutedService{nat}}
		if err := first.Apply(state); err != nil {
			return err
		}
		is := first.register.Records[0]
		index, number := is.Places[0].Index, is.Exceptions
		cpus, err := ebpf.PossibleCPU()
		if err != nil {
			return err
		}
		// Longer elements, and their fields elsewhere.
		field := func(at, size int) snapshot.Field { return snapshot.Field{Offset: at, Size: size} }
		counts := snapshot.ElementLayout{Size: 88, Fields: map[string]snapshot.Field{"bytes": field(0, 8),
			"packets":     field(24, 8),
			"connections": field(40, 8), "returned_packets": field(64, 8), "returned_bytes": field(80, 8)}}
		keys := snapshot.ElementLayout{Size: 28, Fields: map[string]snapshot.Field{"bits": field(0, 4),
			"list": field(8, 4), "address": field(12, 16)}}
		theirs, err := pinInPlaceOf(first, objects.XDPMapBackendCounts,
			&ebpf.MapSpec{Type: ebpf.PerCPUArray, KeySize: 4, ValueSize: 88,
				MaxEntries: first.shared.Counts.MaxEntries()})
		if err != nil {
			return err
		}
		defer theirs.Close()
		lists, err := pinInPlaceOf(first, objects.XDPMapPrefixes, &ebpf.MapSpec{Type: ebpf.LPMTrie, KeySize: 28,
			ValueSize: 4, MaxEntries: 100, Flags: unix.BPF_F_NO_PREALLOC})
		if err != nil {
			return err
		}
		defer lists.Close()
		for _, prefix := range nat.Untranslated {
			key := make([]byte, 28)
			binary.NativeEndian.PutUint32(key, uint32(64+prefix.Bits()))
			binary.NativeEndian.PutUint32(key[8:], number)
			copy(key[12:], prefix.Addr().AsSlice())
			if err := lists.Put(key, uint32(1)); err != nil {
				return err
			}
		}
		count := func(n uint64) {
			t.Helper()
			perCPU := make([][]byte, cpus)
			for cpu := range perCPU {
				perCPU[cpu] = make([]byte, 88)
			}
			for i, at := range []int{24, 0, 40, 64, 80} {
				binary.NativeEndian.PutUint64(perCPU[0][at:], n+uint64(i))
				binary.NativeEndian.PutUint64(perCPU[cpus-1][at:], n+uint64(i))
			}
			if err := theirs.Put(index, perCPU); err != nil {
				t.Fatal(err)
			}
		}
		expect := func(d *Datapath, when string, n uint64) {
			t.Helper()
			counters, err := d.Counters()
			if err != nil {
				t.Fatal(err)
			}
			if cpus > 1 {
				n *= 2
			}
			plus := min(uint64(cpus), 2)
			want := lb.BackendCount{Packets: n, Bytes: n + plus, Connections: n + 2*plus, ReturnedPackets: n + 3*plus,
				ReturnedBytes: n + 4*plus}
			if is := counters.Backends[nat.BackendKey(nat.Backends[0])]; is != want {
				t.Errorf("%s, the backend has counted %+v, want %+v", when, is, want)
			}
			for _, prefix := range nat.Untranslated {
				var there uint32
				if err := d.shared.Prefixes.Lookup(generation.PrefixKey(number, prefix), &there); err != nil {
					t.Errorf("%s, %s is not untranslated: %v", when, prefix, err)
				}
			}
		}
		err = rewriteSnapshot(first, func(s *snapshot.Snapshot) {
			s.Layouts[objects.XDPMapBackendCounts], s.Layouts[objects.XDPMapPrefixes] = "another", "another"
			s.Elements = map[string]snapshot.ElementLayout{objects.XDPMapBackendCounts: counts,
				objects.XDPMapPrefixes: keys}
		})
		count(100)
		if err := errors.Join(err, first.Release()); err != nil {
			return err
		}

		second, err := k.adopt()
		if err != nil {
			return err
		}
		expect(second, "before the programs are exchanged", 100)
		// The old program goes on counting until then.
		count(1000)
		ahead, _, err := second.ledger.Counted()
		if err != nil || ahead[index].Packets == 0 {
			t.Errorf("what the next snapshot would have is %v, %v", ahead, err)
		}
		if err := second.Apply(state); err != nil {
			return err
		}
		expect(second, "after the programs were exchanged", 1000)
		if now := second.register.Records[0].Exceptions; now != number {
			t.Errorf("the number of its destinations was %d, and is %d", number, now)
		}
		if err := second.Release(); err != nil {
			return err
		}
		third, err := k.adopt()
		if err != nil {
			return err
		}
		expect(third, "after the next restart", 1000)
		return third.Close()
	})
}
