// SPDX-License-Identifier: Apache-2.0

package wire

import (
	"net"
	"testing"
	"time"

	"github.com/cilium/ebpf"
	"github.com/cilium/ebpf/asm"
	"github.com/vishvananda/netlink"
	"golang.org/x/sys/unix"

	"github.com/jeoul/jeoul/internal/host/namespace"
	"github.com/jeoul/jeoul/internal/test/testenv"
)

// newBetween makes a rig of one client port and two server ports with a namespace between them, in which the test
// forwards packets: interfaces c, s1 and s2.
func newBetween(t *testing.T) (r *rig, middle *namespace.Namespace, index map[string]int) {
	t.Helper()
	middle = testenv.Namespace(t)
	r = &rig{spec: Spec{Target: vip, Reply: ReplyDirect, CPU: -1, Seed: 7, Next: []net.HardwareAddr{balancerMAC}}}
	join := func(far string, ns *namespace.Namespace, near string) Port {
		testenv.Veth(t, testenv.End{Namespace: ns, Name: far}, testenv.End{Namespace: middle, Name: near})
		return Port{Interface: far, Do: ns.Do}
	}
	client := join("client", testenv.Namespace(t), "c")
	client.Sources = sources(0)
	r.spec.Clients = []Port{client}
	r.spec.Servers = []Port{join("server1", testenv.Namespace(t), "s1"), join("server2", testenv.Namespace(t), "s2")}
	index = map[string]int{}
	testenv.In(t, middle, func() error {
		for _, name := range []string{"c", "s1", "s2"} {
			link, err := netlink.LinkByName(name)
			if err != nil {
				return err
			}
			index[name] = link.Attrs().Index
		}
		return nil
	})
	return r, middle, index
}

// sendTo returns instructions that redirect to an interface.
func sendTo(index int) asm.Instructions {
	return asm.Instructions{asm.Mov.Imm(asm.R1, int32(index)), asm.Mov.Imm(asm.R2, 0), asm.FnRedirect.Call(),
		asm.Return()}
}

// withFlags puts the TCP flags of a frame into R3, before the instructions of then; a frame without TCP flags continues
// at the label "else".
func withFlags(then asm.Instructions) asm.Instructions {
	return append(asm.Instructions{
		asm.LoadMem(asm.R6, asm.R1, 0, asm.Word),
		asm.LoadMem(asm.R7, asm.R1, 4, asm.Word),
		asm.Mov.Reg(asm.R8, asm.R6),
		asm.Add.Imm(asm.R8, 48),
		asm.JGT.Reg(asm.R8, asm.R7, "else"),
		asm.LoadMem(asm.R3, asm.R6, 47, asm.Byte),
	}, then...)
}

func labelled(name string, code asm.Instructions) asm.Instructions {
	code[0] = code[0].WithSymbol(name)
	return code
}

// every drops each n-th packet of TCP or UDP over IPv4, which a map counts, and redirects the others: packets between
// the namespaces' kernels are not the tester's.
func every(t *testing.T, n, index int) (code asm.Instructions, seen *ebpf.Map) {
	t.Helper()
	seen, err := ebpf.NewMap(&ebpf.MapSpec{Type: ebpf.Array, KeySize: 4, ValueSize: 8, MaxEntries: 1})
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { seen.Close() })
	const etherIPv4 = 0x0008 // as a little-endian load sees it
	code = asm.Instructions{
		asm.LoadMem(asm.R6, asm.R1, 0, asm.Word),
		asm.LoadMem(asm.R7, asm.R1, 4, asm.Word),
		asm.Mov.Reg(asm.R8, asm.R6),
		asm.Add.Imm(asm.R8, 24),
		asm.JGT.Reg(asm.R8, asm.R7, "through"),
		asm.LoadMem(asm.R3, asm.R6, 12, asm.Half),
		asm.JNE.Imm(asm.R3, etherIPv4, "through"),
		asm.LoadMem(asm.R3, asm.R6, 23, asm.Byte),
		asm.JEq.Imm(asm.R3, unix.IPPROTO_TCP, "count"),
		asm.JNE.Imm(asm.R3, unix.IPPROTO_UDP, "through"),
	}
	code = append(code, labelled("count", asm.Instructions{
		asm.StoreImm(asm.RFP, -4, 0, asm.Word),
		asm.Mov.Reg(asm.R2, asm.RFP),
		asm.Add.Imm(asm.R2, -4),
		asm.LoadMapPtr(asm.R1, seen.FD()),
		asm.FnMapLookupElem.Call(),
		asm.JEq.Imm(asm.R0, 0, "drop"),
		asm.LoadMem(asm.R1, asm.R0, 0, asm.DWord),
		asm.Add.Imm(asm.R1, 1),
		asm.StoreMem(asm.R0, 0, asm.R1, asm.DWord),
		asm.Mod.Imm(asm.R1, int32(n)),
		asm.JEq.Imm(asm.R1, 0, "drop"),
	})...)
	code = append(code, labelled("through", sendTo(index))...)
	return append(code, labelled("drop", asm.Instructions{asm.Mov.Imm(asm.R0, xdpDrop), asm.Return()})...), seen
}

func read(t *testing.T, m *ebpf.Map) (n int64) {
	t.Helper()
	if err := m.Lookup(uint32(0), &n); err != nil {
		t.Fatal(err)
	}
	return n
}

// TestLossIsRecovered drops packets in both directions: retransmissions compensate for that, and dropped packets are
// counted exactly.
func TestLossIsRecovered(t *testing.T) {
	const nth = 20
	r, middle, index := newBetween(t)
	there, seenThere := every(t, nth, index["s1"])
	back, seenBack := every(t, nth, index["c"])
	attach(t, middle, "c", there)
	attach(t, middle, "s1", back)
	attach(t, middle, "s2", pass())
	tester := r.open(t)
	for _, load := range []Load{
		{Kind: Session, Connections: 2000},
		{Kind: Session, Connections: 2000, Request: 100, Response: 5000},
		{Kind: Capacity, Connections: 2000},
		{Kind: DNS, Connections: 2000, Tries: 8},
	} {
		load.Timeout, load.Settle = 20*time.Millisecond, 20*time.Second
		if load.Tries == 0 {
			load.Tries = 8
		}
		wasThere, wasBack := read(t, seenThere), read(t, seenBack)
		s := run(t, tester, load)[0]
		if s.Completed != 2000 || s.Failed != (Failed{}) || s.Retransmitted == 0 || s.Unexpected.Checksum+
			s.Unexpected.UnknownPeer != 0 {
			t.Errorf("%s: %+v", load.Kind, s)
		}
		if s.PerServer[0] != 2000 && load.Kind != DNS {
			t.Errorf("%s: the server port accepted %d", load.Kind, s.PerServer[0])
		}
		if load.Kind == Capacity {
			continue // whose connections were reset after the step
		}
		lostThere, lostBack := read(t, seenThere)/nth-wasThere/nth, read(t, seenBack)/nth-wasBack/nth
		if s.LostToServers != lostThere || s.LostToClients != lostBack {
			t.Errorf("%s: %d and %d packets lost, but %d and %d were dropped", load.Kind, s.LostToServers,
				s.LostToClients, lostThere, lostBack)
		}
	}
}

// TestNobodyAnswers drops all packets.
func TestNobodyAnswers(t *testing.T) {
	r, middle, _ := newBetween(t)
	for _, name := range []string{"c", "s1", "s2"} {
		attach(t, middle, name, asm.Instructions{asm.Mov.Imm(asm.R0, xdpDrop), asm.Return()})
	}
	tester := r.open(t)
	s := run(t, tester, Load{Kind: Setup, Connections: 500, Timeout: 10 * time.Millisecond, Tries: 2})[0]
	if s.Failed.NoAnswer != 500 || s.Established != 0 || s.Retransmitted != 500 || s.LostToServers != 1000 {
		t.Errorf("%+v", s)
	}
	// Connections that would wait longer are given up when the step's time is over.
	s = run(t, tester, Load{Kind: Setup, Connections: 100, Outstanding: 100, Timeout: time.Minute,
		Settle: 50 * time.Millisecond})[0]
	if s.Failed.NoAnswer != 100 || s.Retransmitted != 0 {
		t.Errorf("%+v", s)
	}
}

// TestBalancerThatMovesFlows sends a connection's SYN to one server port, and the following packets to the other.
func TestBalancerThatMovesFlows(t *testing.T) {
	r, middle, index := newBetween(t)
	code := withFlags(asm.Instructions{asm.And.Imm(asm.R3, 2), asm.JEq.Imm(asm.R3, 0, "else")})
	code = append(code, sendTo(index["s1"])...)
	attach(t, middle, "c", append(code, labelled("else", sendTo(index["s2"]))...))
	attach(t, middle, "s1", sendTo(index["c"]))
	attach(t, middle, "s2", sendTo(index["c"]))
	tester := r.open(t)
	s := run(t, tester, Load{Kind: Setup, Connections: 1000, Rate: 20_000})[0]
	if s.Failed.WrongBackend != 1000 || s.Established != 0 || s.Unexpected.WrongBackend != 1000 || s.PerServer[0]+
		s.PerServer[1] != 0 {
		t.Errorf("%+v", s)
	}
	s = run(t, tester, Load{Kind: Session, Connections: 1000, Request: 10, Response: 10, Rate: 20_000})[0]
	if s.Failed.WrongBackend != 1000 || s.Completed != 0 {
		t.Errorf("%+v", s)
	}
}
