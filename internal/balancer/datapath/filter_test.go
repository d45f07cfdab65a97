// SPDX-License-Identifier: Apache-2.0

package datapath

import (
	"bufio"
	"errors"
	"fmt"
	"os"
	"os/exec"
	"slices"
	"strings"
	"testing"

	"github.com/cilium/ebpf"
	"github.com/cilium/ebpf/asm"
	"github.com/gopacket/gopacket"
	"github.com/gopacket/gopacket/layers"
	"github.com/vishvananda/netlink"
	"golang.org/x/sys/unix"

	"github.com/jeoul/jeoul/internal/balancer/datapath/attach"
	"github.com/jeoul/jeoul/internal/balancer/datapath/loader"
	"github.com/jeoul/jeoul/internal/balancer/lb"
	"github.com/jeoul/jeoul/internal/host/namespace"
	"github.com/jeoul/jeoul/internal/host/netdump"
	"github.com/jeoul/jeoul/internal/test/testenv"
)

// openWithoutTCX opens a datapath that attaches bystanders as on a kernel without TCX.
func openWithoutTCX(nics ...string) (*Datapath, error) {
	d, err := Open(Options{Interfaces: nics, Hook: lb.HookTC, TableSize: testTableSize})
	if err != nil {
		return nil, err
	}
	d.attempts = onlyBy(attach.TCFilter)
	d.programs = passProgram
	return d, nil
}

// withSwappedService adds a service to each second state, whose mode needs another program.
func withSwappedService(state lb.State, i int) lb.State {
	if i%2 != 0 {
		dscp := testService(vip6, 90, lb.TCP, lb.Maglev, 1)
		dscp.Mode, dscp.DSCP = lb.DSCP, 10
		state.Services = append(slices.Clip(state.Services), dscp)
	}
	return state
}

// TestFilter attaches, swaps and detaches, on two interfaces.
func TestFilter(t *testing.T) {
	testenv.Root(t)
	testenv.In(t, newNICs(t), func() error {
		d, err := openWithoutTCX("veth0", "bridge0")
		if err != nil {
			return err
		}
		defer d.Close()
		for i := range 3 {
			before := d.Program()
			if err := d.Apply(withSwappedService(testState(), i)); err != nil {
				return err
			}
			if d.Program() == before {
				t.Error("nothing was swapped")
			}
			if err := expectRunning("veth0", d.Program()); err != nil {
				t.Error(err)
			}
			if err := expectAttached([]string{"bridge0"}, true); err != nil {
				t.Error(err)
			}
		}
		if err := d.Close(); err != nil {
			return err
		}
		return errors.Join(expectAttached([]string{"veth0", "bridge0"}, false), ingressQdisc("veth0", ""),
			ingressQdisc("bridge0", ""))
	})
}

// TestRemovedFilter: another program removes clsact, and our filter with it. It is put back when that is looked at, and
// by a change that needs other programs.
func TestRemovedFilter(t *testing.T) {
	testenv.Root(t)
	testenv.In(t, newNICs(t), func() error {
		d, err := openWithoutTCX("veth0", "bridge0")
		if err != nil {
			return err
		}
		defer d.Close()
		if err := d.Apply(testState()); err != nil {
			return err
		}
		for i, back := range []func() error{
			func() error { return nil },
			func() error { return d.Apply(withSwappedService(testState(), 1)) },
		} {
			if err := errors.Join(delQdisc("veth0"), expectAttached([]string{"veth0"}, false), back()); err != nil {
				return fmt.Errorf("way %d: %w", i, err)
			}
			note, err := d.Repin()
			if err := errors.Join(err, expectText(note, "from veth0 (a TC filter): it is put back")); err != nil {
				return fmt.Errorf("way %d: %w", i, err)
			}
			if err := expectRunning("veth0", d.Program()); err != nil {
				t.Error(err)
			}
		}
		if err := d.Close(); err != nil {
			return err
		}
		return errors.Join(expectAttached([]string{"veth0", "bridge0"}, false), ingressQdisc("veth0", ""),
			ingressQdisc("bridge0", ""))
	})
}

// ingressQdisc returns an error unless the interface has that qdisc at its ingress; "" stands for none.
func ingressQdisc(name, want string) error {
	nic, err := netlink.LinkByName(name)
	if err != nil {
		return err
	}
	qdiscs, err := netdump.Consistent(func() ([]netlink.Qdisc, error) {
		return netlink.QdiscList(nic)
	})
	if err != nil {
		return err
	}
	have := ""
	for _, qdisc := range qdiscs {
		if qdisc.Attrs().Parent == netlink.HANDLE_INGRESS {
			have = qdisc.Type()
		}
	}
	if have != want {
		return fmt.Errorf("%s has the ingress qdisc %q, want %q", name, have, want)
	}
	return nil
}

// TestFilterSwapsInOneStep sends packets through swaps, one at a time: each must
// come back.
func TestFilterSwapsInOneStep(t *testing.T) {
	ns, peer := testenv.Namespace(t), testenv.Namespace(t)
	mac, _ := testenv.Veth(t, testenv.End{Namespace: ns, Name: "lb"}, testenv.End{Namespace: peer, Name: "router"})
	wire := testenv.OpenWire(t, peer, "router")
	service := testService(vip4, 53, lb.UDP, lb.Maglev, 3)
	for i := range service.Paths {
		service.Paths[i].Interface = 0 // back where packets come from
	}
	var d *Datapath
	testenv.In(t, ns, func() (err error) {
		if d, err = openWithoutTCX("lb"); err != nil {
			return err
		}
		d.programs = loader.KindFor
		return d.Apply(lb.State{Services: []lb.RoutedService{service}})
	})
	defer testenv.In(t, ns, func() error { return d.Close() })

	swapped := make(chan error, 1)
	go func() {
		swapped <- ns.Do(func() (err error) {
			for i := 1; i <= 4 && err == nil; i++ {
				before := d.Program()
				err = d.Apply(withSwappedService(lb.State{Services: []lb.RoutedService{service}}, i))
				if err == nil && d.Program() == before {
					err = errors.New("nothing was swapped")
				}
			}
			return err
		})
	}()
	for port := layers.UDPPort(1024); len(swapped) == 0; port = max(port+1, 1024) {
		ip := &layers.IPv4{Version: 4, TTL: 64, Protocol: layers.IPProtocolUDP, SrcIP: client4.AsSlice(),
			DstIP: vip4.AsSlice()}
		udp := &layers.UDP{SrcPort: port, DstPort: 53}
		if err := udp.SetNetworkLayerForChecksum(ip); err != nil {
			t.Fatal(err)
		}
		wire.Send(&layers.Ethernet{SrcMAC: routerMAC, DstMAC: mac, EthernetType: layers.EthernetTypeIPv4}, ip, udp)
		wire.Next(fmt.Sprintf("packet from port %d", port), func(packet gopacket.Packet) bool {
			udp, ok := packet.Layer(layers.LayerTypeUDP).(*layers.UDP)
			return ok && udp.SrcPort == port && udp.DstPort == 53
		})
	}
	if err := <-swapped; err != nil {
		t.Error(err)
	}
}

// TestFilterLeavesOthersAlone shares an interface with filters of others.
func TestFilterLeavesOthersAlone(t *testing.T) {
	testenv.Root(t)
	for _, test := range []struct {
		name          string
		before, while func() error
		// The qdisc and the filters that are there after Close.
		qdisc string
		left  []string
	}{
		{"clsact was there", func() error { return addQdisc("veth0", "clsact") }, nil, "clsact", nil},
		{"ingress was there", func() error { return addQdisc("veth0", "ingress") }, nil, "ingress", nil},
		{"a filter was there", func() error {
			return errors.Join(addQdisc("veth0", "clsact"), addFilter("veth0", netlink.HANDLE_MIN_INGRESS, 1, "other"))
		}, nil, "clsact", []string{"other"}},
		{"a filter came", nil, func() error { return addFilter("veth0", netlink.HANDLE_MIN_INGRESS, 1, "other") },
			"clsact", []string{"other"}},
		{"a filter of the other direction came", nil, func() error {
			return addFilter("veth0", netlink.HANDLE_MIN_EGRESS, 1, "other")
		},
			"clsact", nil},
		{"another has taken all away", nil, func() error { return delQdisc("veth0") }, "", nil},
	} {
		t.Run(test.name, func(t *testing.T) {
			testenv.In(t, newNICs(t), func() error {
				d, err := openWithoutTCX("veth0")
				if err != nil {
					return err
				}
				defer d.Close()
				for _, do := range []func() error{
					test.before, func() error { return d.Apply(testState()) }, test.while} {
					if do == nil {
						continue
					}
					if err := do(); err != nil {
						return err
					}
				}
				if err := d.Close(); err != nil {
					return err
				}
				names, err := filterNames("veth0")
				if strings.Join(names, " ") != strings.Join(test.left, " ") || err != nil {
					t.Errorf("after Close the filters are %q, want %q (%v)", names, test.left, err)
				}
				return ingressQdisc("veth0", test.qdisc)
			})
		})
	}
}

// TestFilterPlaceTaken finds another program's filter in our place.
func TestFilterPlaceTaken(t *testing.T) {
	testenv.Root(t)
	testenv.In(t, newNICs(t), func() error {
		err := errors.Join(addQdisc("veth0", "clsact"), addFilter("veth0", netlink.HANDLE_MIN_INGRESS,
			attach.FilterPriority, "other"))
		if err != nil {
			return err
		}
		d, err := openWithoutTCX("veth0")
		if err != nil {
			return err
		}
		defer d.Close()
		if err := d.Apply(testState()); !errors.Is(err, attach.ErrBusy) ||
			!strings.Contains(err.Error(), "tc filter show") {
			t.Errorf("a filter of our priority: %v", err)
		}
		if names, err := filterNames("veth0"); len(names) != 1 || names[0] != "other" {
			t.Errorf("filters are %q, want that of the other (%v)", names, err)
		}
		return nil
	})
}

func addQdisc(name, kind string) error {
	nic, err := netlink.LinkByName(name)
	if err != nil {
		return err
	}
	return netlink.QdiscAdd(&netlink.GenericQdisc{QdiscType: kind, QdiscAttrs: netlink.QdiscAttrs{
		LinkIndex: nic.Attrs().Index, Handle: netlink.MakeHandle(0xffff, 0), Parent: netlink.HANDLE_INGRESS}})
}

func delQdisc(name string) error {
	nic, err := netlink.LinkByName(name)
	if err != nil {
		return err
	}
	return netlink.QdiscDel(&netlink.GenericQdisc{QdiscType: "clsact", QdiscAttrs: netlink.QdiscAttrs{
		LinkIndex: nic.Attrs().Index, Handle: netlink.MakeHandle(0xffff, 0), Parent: netlink.HANDLE_INGRESS}})
}

// addFilter adds a filter that is not ours.
func addFilter(name string, parent uint32, priority uint16, called string) error {
	nic, err := netlink.LinkByName(name)
	if err != nil {
		return err
	}
	program, err := ebpf.NewProgram(&ebpf.ProgramSpec{Type: ebpf.SchedCLS, License: "GPL",
		Instructions: asm.Instructions{asm.Mov.Imm(asm.R0, -1), asm.Return()}})
	if err != nil {
		return err
	}
	defer program.Close()
	return netlink.FilterAdd(&netlink.BpfFilter{Fd: program.FD(), Name: called, DirectAction: true,
		FilterAttrs: netlink.FilterAttrs{
			LinkIndex: nic.Attrs().Index, Parent: parent, Handle: 1, Priority: priority, Protocol: unix.ETH_P_ALL}})
}

// filterNames returns the names of the eBPF filters at the ingress.
func filterNames(name string) ([]string, error) {
	nic, err := netlink.LinkByName(name)
	if err != nil {
		return nil, err
	}
	filters, err := netdump.Consistent(func() ([]netlink.Filter, error) {
		return netlink.FilterList(nic, netlink.HANDLE_MIN_INGRESS)
	})
	var names []string
	for _, filter := range filters {
		if bpf, ok := filter.(*netlink.BpfFilter); ok {
			names = append(names, bpf.Name)
		}
	}
	return names, err
}

// TestFilterOfAKilledBalancer kills a balancer, whose filter stays, and starts
// another, which replaces or removes it.
func TestFilterOfAKilledBalancer(t *testing.T) {
	testenv.Root(t)
	for _, test := range []struct {
		name string
		next func() (*Datapath, error)
		// Whether the next one attaches.
		attaches bool
	}{
		{"by a filter", func() (*Datapath, error) { return openWithoutTCX("veth0") }, true},
		{"by XDP", func() (*Datapath, error) {
			d, err := Open(Options{Interfaces: []string{"veth0"}, Hook: lb.HookXDP, TableSize: testTableSize})
			if err == nil {
				d.programs = passProgram
			}
			return d, err
		}, true},
		{"by one that fails", func() (*Datapath, error) {
			return Open(Options{Interfaces: []string{"veth0"}, Hook: lb.HookTC, TableSize: 100})
		}, false},
	} {
		t.Run(test.name, func(t *testing.T) {
			ns := newNICs(t)
			killBalancer(t, ns)
			testenv.In(t, ns, func() error {
				if names, err := filterNames("veth0"); len(names) != 1 || names[0] != attach.FilterNameOnClsact {
					return fmt.Errorf("a killed balancer left the filters %q: %v", names, err)
				}
				d, err := test.next()
				if err != nil {
					return err
				}
				defer d.Close()
				if err := d.Apply(testState()); (err == nil) != test.attaches {
					return fmt.Errorf("the next balancer: %v", err)
				}
				if test.attaches {
					if err := expectRunning("veth0", d.Program()); err != nil {
						t.Error(err)
					}
				} else if err := expectAttached([]string{"veth0"}, false); err != nil {
					t.Error(err)
				}
				if err := d.Close(); err != nil {
					return err
				}
				return errors.Join(expectAttached([]string{"veth0"}, false), ingressQdisc("veth0", ""))
			})
		})
	}
}

// victimVariable is set for the process that is killed.
const victimVariable = "JEOUL_TEST_FILTER_VICTIM"

// killBalancer runs a balancer on veth0 in a process of its own, and kills it.
func killBalancer(t *testing.T, ns *namespace.Namespace) {
	t.Helper()
	program, err := os.Executable()
	if err != nil {
		t.Fatal(err)
	}
	command := exec.Command(program, "-test.run=^TestFilterVictim$", "-test.timeout=60s")
	command.Env = append(os.Environ(), victimVariable+"=1")
	out, err := command.StdoutPipe()
	if err != nil {
		t.Fatal(err)
	}
	testenv.In(t, ns, command.Start) // in the namespace of the thread that starts it
	defer command.Wait()
	defer command.Process.Kill()
	text := ""
	for lines := bufio.NewScanner(out); lines.Scan(); text += lines.Text() + "\n" {
		if lines.Text() == "attached" {
			return
		}
	}
	t.Fatalf("the balancer to kill did not come up:\n%s", text)
}

// TestFilterVictim is the process that killBalancer kills.
func TestFilterVictim(t *testing.T) {
	if os.Getenv(victimVariable) == "" {
		t.Skip("runs as a process of TestFilterOfAKilledBalancer only")
	}
	d, err := openWithoutTCX("veth0")
	if err != nil {
		t.Fatal(err)
	}
	if err := d.Apply(testState()); err != nil {
		t.Fatal(err)
	}
	fmt.Println("attached")
	select {}
}
