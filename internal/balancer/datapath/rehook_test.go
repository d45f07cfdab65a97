// SPDX-License-Identifier: Apache-2.0

package datapath

import (
	"errors"
	"fmt"
	"maps"
	"os"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/cilium/ebpf"
	"github.com/cilium/ebpf/asm"
	"github.com/gopacket/gopacket"
	"github.com/gopacket/gopacket/layers"
	"github.com/vishvananda/netlink"
	"golang.org/x/sys/unix"

	"github.com/jeoul/jeoul/internal/balancer/datapath/attach"
	"github.com/jeoul/jeoul/internal/balancer/lb"
	"github.com/jeoul/jeoul/internal/host/hostnet"
	"github.com/jeoul/jeoul/internal/test/testenv"
)

// filterAttempts are the ways of a kernel without TCX.
func filterAttempts(requested lb.Hook, ports []attach.Port) []attach.Attempt {
	return slices.DeleteFunc(attach.Attempts(requested, ports), func(a attach.Attempt) bool {
		return a.Method == attach.TCX
	})
}

// openOn opens a datapath with a state on interfaces of the calling thread's namespace.
func openOn(hook lb.Hook, changes *hostnet.Changes, attempts func(lb.Hook, []attach.Port) []attach.Attempt,
	names ...string) (*Datapath, error) {
	d, err := Open(Options{Interfaces: names, Hook: hook, TableSize: testTableSize,
		DisableFeature: changes.DisableFeature,
		RestoreFeature: changes.RestoreFeature})
	if err != nil {
		return nil, err
	}
	d.attempts, d.programs = attempts, passProgram
	if err := d.Apply(testState()); err != nil {
		return nil, errors.Join(err, d.Close())
	}
	return d, nil
}

// onNICs runs a test with a datapath on interfaces of nics. Its changes to them are undone when the test has closed it.
func onNICs(t *testing.T, hook lb.Hook, attempts func(lb.Hook, []attach.Port) []attach.Attempt, names []string,
	test func(*Datapath) error) {
	t.Helper()
	testenv.In(t, newNICs(t), func() error {
		changes, err := hostnet.Open(t.TempDir(), "test")
		if err != nil {
			return err
		}
		defer changes.Close()
		d, err := openOn(hook, changes, attempts, names...)
		if err != nil {
			return err
		}
		defer d.Close()
		if err := test(d); err != nil {
			return err
		}
		return changes.Close()
	})
}

// stateForHook returns the state of the tests for a hook.
func stateForHook(hook lb.Hook) lb.State {
	state := testState()
	state.Hook = hook
	return state
}

// expectCurrent returns an error unless each interface has its program of the current
// generation, and none but that and those of others.
func expectCurrent(d *Datapath, names []string, others ...ebpf.ProgramID) error {
	for i, name := range names {
		info, err := d.current.Programs[i].Info()
		if err != nil {
			return err
		}
		want, _ := info.ID()
		have, err := programsOn(name)
		if err != nil {
			return err
		}
		have = slices.DeleteFunc(have, func(id ebpf.ProgramID) bool { return slices.Contains(others, id) })
		if !slices.Equal(have, []ebpf.ProgramID{want}) {
			return fmt.Errorf("%s runs %v, want %v", name, have, want)
		}
	}
	return nil
}

// TestRehook moves the programs back and forth. Flows and counters stay, the offload of VLAN tags follows, and
// afterwards nothing is left.
func TestRehook(t *testing.T) {
	testenv.Root(t)
	for _, test := range []struct {
		name     string
		nics     []string
		attempts func(lb.Hook, []attach.Port) []attach.Attempt
		xdp      string
		shown    int
	}{
		{"native XDP and TCX", []string{"veth0", "veth1"}, attach.Attempts, "xdp (native)", len(attach.TagOffloads)},
		{"generic XDP and TCX", []string{"veth0", "bridge0"}, attach.Attempts, "xdp (generic)",
			len(attach.TagOffloads)},
		{"native XDP and a filter", []string{"veth0", "veth1"}, filterAttempts, "xdp (native)",
			len(attach.TagOffloads)},
	} {
		t.Run(test.name, func(t *testing.T) {
			onNICs(t, lb.HookTC, test.attempts, test.nics, func(d *Datapath) error {
				shared := d.shared
				for _, step := range []struct {
					hook lb.Hook
					want string
				}{{lb.HookXDP, test.xdp}, {lb.HookTC, "tc"}, {"", "tc"}, {lb.HookXDP, test.xdp}, {"", test.xdp},
					{lb.HookAuto, "tc"}, {lb.HookTC, "tc"}} {
					if err := d.Apply(stateForHook(step.hook)); err != nil {
						return fmt.Errorf("hook %q: %w", step.hook, err)
					}
					for i, at := range d.Attachments() {
						if at.String() != step.want || at.Interface != test.nics[i] || at.Reason == "" {
							t.Errorf("hook %q: attached as %+v, want %s", step.hook, at, step.want)
						}
					}
					if err := expectCurrent(d, test.nics); err != nil {
						t.Errorf("hook %q: %v", step.hook, err)
					}
					if d.shared != shared {
						t.Errorf("hook %q: flows and counters are others", step.hook)
					}
					hidden := test.shown
					if strings.HasPrefix(step.want, "xdp") {
						hidden = 0
					}
					if on := strippingFeatures(t, "veth0"); len(on) != hidden {
						t.Errorf("hook %q: of what hides tags, %v are on, want %d", step.hook, on, hidden)
					}
				}
				return errors.Join(d.Close(), expectAttached(test.nics, false))
			})
		})
	}
}

// failureSetup makes the next change of hook or interfaces fail; it returns the programs of others, and the function
// that mends it.
type failureSetup func(t *testing.T, d *Datapath) ([]ebpf.ProgramID, func() error, error)

// anotherXDP takes the place of XDP on veth1.
func anotherXDP(*testing.T, *Datapath) ([]ebpf.ProgramID, func() error, error) {
	other, err := attachForeign("veth1")
	if err != nil {
		return nil, nil, err
	}
	info, err := other.Info()
	if err != nil {
		return nil, nil, err
	}
	return []ebpf.ProgramID{info.Program}, other.Close, nil
}

// anotherFilter takes the place of our filter on veth1.
func anotherFilter(*testing.T, *Datapath) ([]ebpf.ProgramID, func() error, error) {
	other, mend, err := attachForeignFilter("veth1")
	return []ebpf.ProgramID{other}, mend, err
}

// blockStripping has the driver of veth1 refuse to leave VLAN tags in frames.
func blockStripping(_ *testing.T, d *Datapath) ([]ebpf.ProgramID, func() error, error) {
	off := d.tags.DisableFeature
	d.tags.DisableFeature = func(name, feature, why string) error {
		if name == "veth1" {
			return errors.New("its driver leaves it as it is")
		}
		return off(name, feature, why)
	}
	return nil, func() error { d.tags.DisableFeature = off; return nil }, nil
}

// blockSecondHold has the second interface fail to be left, once.
func blockSecondHold(_ *testing.T, d *Datapath) ([]ebpf.ProgramID, func() error, error) {
	d.holds[1] = stuckHold{d.holds[1]}
	return nil, func() error { return nil }, nil
}

// stuckHold is a hold that cannot be closed well.
type stuckHold struct{ attach.Hold }

func (s stuckHold) Close() error { return errors.Join(errors.New("stuck"), s.Hold.Close()) }

// TestRehookRefused: where the hook cannot change, the present programs go on, on every interface, and a later change
// can be made.
func TestRehookRefused(t *testing.T) {
	testenv.Root(t)
	onlyFilters := func(lb.Hook, []attach.Port) []attach.Attempt { return []attach.Attempt{{Method: attach.TCFilter}} }
	onlyXDP := func(requested lb.Hook, ports []attach.Port) []attach.Attempt {
		if requested == lb.HookTC {
			return []attach.Attempt{{Method: attach.TCFilter}}
		}
		return attach.Attempts(requested, ports)
	}
	for _, test := range []struct {
		name     string
		from, to lb.Hook
		attempts func(lb.Hook, []attach.Port) []attach.Attempt
		spoil    failureSetup
		says     []string
		is       error
	}{
		{"another XDP program", lb.HookTC, lb.HookXDP, attach.Attempts, anotherXDP, []string{"veth1", "occupant"},
			attach.ErrBusy},
		{"tags that stay hidden", lb.HookTC, lb.HookXDP, attach.Attempts, blockStripping,
			[]string{"veth1 takes VLAN tags out"}, attach.ErrUnsupported},
		{"TC cannot be left", lb.HookTC, lb.HookXDP, attach.Attempts, blockSecondHold,
			[]string{"detaching from veth1 in TCX", "stuck"}, nil},
		{"a filter of TC cannot be left", lb.HookTC, lb.HookXDP, filterAttempts, blockSecondHold,
			[]string{"detaching from veth1 in a TC filter", "stuck"}, nil},
		{"XDP cannot be left", lb.HookXDP, lb.HookTC, attach.Attempts, blockSecondHold,
			[]string{"detaching from veth1 in native XDP", "stuck"}, nil},
		{"another filter in our place", lb.HookXDP, lb.HookTC, onlyXDP, anotherFilter,
			[]string{"veth1", "the priority"}, attach.ErrBusy},
		{"no way", lb.HookXDP, lb.HookTC, attach.Attempts, func(t *testing.T, d *Datapath) ([]ebpf.ProgramID,
			func() error, error) {
			d.attempts = func(lb.Hook, []attach.Port) []attach.Attempt {
				return []attach.Attempt{{Method: attach.GenericXDP}}
			}
			return nil, func() error { d.attempts = onlyFilters; return nil }, nil
		}, []string{"hook: tc"}, attach.ErrUnsupported},
	} {
		t.Run(test.name, func(t *testing.T) {
			both := []string{"veth0", "veth1"}
			onNICs(t, test.from, test.attempts, both, func(d *Datapath) error {
				program, attached, features := d.Program(), d.Attachments(), strippingFeatures(t, "veth0")
				others, mend, err := test.spoil(t, d)
				if err != nil {
					return err
				}
				err = d.Apply(stateForHook(test.to))
				if err == nil || test.is != nil && !errors.Is(err, test.is) {
					t.Errorf("%v, want %v", err, test.is)
				}
				for _, words := range test.says {
					if err != nil && !strings.Contains(err.Error(), words) {
						t.Errorf("it does not say %q: %v", words, err)
					}
				}
				if d.Program() != program || !slices.Equal(d.Attachments(), attached) {
					t.Errorf("what was refused is in use: %+v", d.Attachments())
				}
				if err := expectCurrent(d, both, others...); err != nil {
					t.Error(err)
				}
				if on := strippingFeatures(t, "veth0"); !slices.Equal(on, features) {
					t.Errorf("of what hides tags, %v are on, were %v", on, features)
				}
				// It goes on changing as it was, and once it is mended moves.
				if err := errors.Join(d.Apply(lb.State{Services: testState().Services[:1]}), mend(),
					d.Apply(stateForHook(test.to))); err != nil {
					return err
				}
				if got := d.Attachments()[1]; got.Hook != test.to {
					t.Errorf("afterwards it is attached as %+v", got)
				}
				if err := expectCurrent(d, both, others...); err != nil {
					t.Error(err)
				}
				return errors.Join(d.Close(), expectAttached(both, false))
			})
		})
	}
}

// attachForeignFilter puts a filter that is not ours into our place in TC.
func attachForeignFilter(name string) (id ebpf.ProgramID, remove func() error, err error) {
	nic, err := netlink.LinkByName(name)
	if err != nil {
		return 0, nil, err
	}
	program, err := ebpf.NewProgram(&ebpf.ProgramSpec{Type: ebpf.SchedCLS, License: "GPL",
		Instructions: asm.Instructions{asm.Mov.Imm(asm.R0, -1), asm.Return()}})
	if err != nil {
		return 0, nil, err
	}
	defer program.Close()
	info, err := program.Info()
	if err != nil {
		return 0, nil, err
	}
	id, _ = info.ID()
	index := nic.Attrs().Index
	clsact := &netlink.Clsact{QdiscAttrs: netlink.QdiscAttrs{LinkIndex: index, Handle: netlink.MakeHandle(0xffff, 0),
		Parent: netlink.HANDLE_CLSACT}}
	other := &netlink.BpfFilter{Fd: program.FD(), Name: "another's", DirectAction: true,
		FilterAttrs: netlink.FilterAttrs{
			LinkIndex: index, Parent: netlink.HANDLE_MIN_INGRESS, Priority: attach.FilterPriority,
			Protocol: unix.ETH_P_ALL}}
	return id, func() error { return netlink.QdiscDel(clsact) },
		errors.Join(netlink.QdiscAdd(clsact), netlink.FilterAdd(other))
}

// received returns how many IPv4 packets the kernel's own stack has got in the calling
// thread's namespace.
func received() (n int, err error) {
	snmp, err := os.ReadFile("/proc/thread-self/net/snmp")
	if err != nil {
		return 0, err
	}
	lines := strings.Split(string(snmp), "\n")
	names, values := strings.Fields(lines[0]), strings.Fields(lines[1])
	_, err = fmt.Sscan(values[slices.Index(names, "InReceives")], &n)
	return n, err
}

// TestPacketsWhileTheHookChanges sends packets of a service all the time: none of them gets
// past both programs into the kernel's stack, and after each change they arrive.
func TestPacketsWhileTheHookChanges(t *testing.T) {
	all := map[string]func(lb.Hook, []attach.Port) []attach.Attempt{"TCX": attach.Attempts, "filter": filterAttempts}
	for _, name := range testenv.Some(t, testenv.HooksTarget, 1, slices.Sorted(maps.Keys(all))) {
		t.Run(name, func(t *testing.T) {
			attempts, w := all[name], newWires(t)
			service := testService(vip4, 80, lb.TCP, lb.RoundRobin, 1)
			service.Paths[0] = w.path(1)
			var d *Datapath
			testenv.In(t, w.balancer, func() (err error) {
				d, err = Open(Options{Interfaces: []string{"in", "out"}, Hook: lb.HookTC, TableSize: testTableSize})
				if err != nil {
					return err
				}
				t.Cleanup(func() { d.Close() })
				d.attempts = attempts
				return d.Apply(lb.State{Services: []lb.RoutedService{service}})
			})
			p := web4()
			_, ip := p.lower(layers.IPProtocolTCP)
			link := &layers.Ethernet{SrcMAC: routerMAC, DstMAC: w.mac[0], EthernetType: layers.EthernetTypeIPv4}
			transport := p.transport(t, ip)
			send := func(length int) { w.wire[0].Send(link, ip, transport, gopacket.Payload(make([]byte, length))) }
			stop, stopped := make(chan struct{}), make(chan struct{})
			go func() {
				defer close(stopped)
				for every := time.NewTicker(time.Millisecond); ; send(10) {
					select {
					case <-stop:
						every.Stop()
						return
					case <-every.C:
					}
				}
			}()
			move := func(hook lb.Hook) {
				testenv.In(t, w.balancer, func() error {
					return d.Apply(lb.State{Services: []lb.RoutedService{service}, Hook: hook})
				})
			}
			move(lb.HookXDP)
			move(lb.HookTC)
			close(stop)
			<-stopped
			for i, hook := range []lb.Hook{lb.HookXDP, lb.HookTC} {
				w.drain(t, 1)
				move(hook)
				w.expect(t, 1, "frame after a change to "+string(hook), delivered{1, 14 + 40 + 100 + i, false},
					func() { send(100 + i) })
			}
			testenv.In(t, w.balancer, func() error {
				n, err := received()
				if n > 0 {
					t.Errorf("%d packets of the service got into the kernel's stack", n)
				}
				return err
			})
			counters, err := d.Counters()
			if err != nil {
				t.Fatal(err)
			}
			// The flow began before the changes and went on after each.
			if got := counters.Backends[service.BackendKey(service.Backends[0])]; got.Connections != 1 ||
				got.Active != 1 {
				t.Errorf("it was counted as %+v, want one connection, which goes on", got)
			}
		})
	}
}
