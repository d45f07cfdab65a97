// SPDX-License-Identifier: Apache-2.0

package datapath

import (
	"errors"
	"fmt"
	"slices"
	"strings"
	"testing"

	"github.com/cilium/ebpf"

	"github.com/jeoul/jeoul/internal/balancer/datapath/attach"
	"github.com/jeoul/jeoul/internal/balancer/datapath/loader"
	"github.com/jeoul/jeoul/internal/balancer/lb"
	"github.com/jeoul/jeoul/internal/test/testenv"
)

// stateOn returns the state of the tests for interfaces and a hook.
func stateOn(hook lb.Hook, names ...string) lb.State {
	state := stateForHook(hook)
	state.Interfaces = names
	return state
}

// expectTakenOn returns an error unless packets are taken on these interfaces, in this order, by
// the current programs, and on no other of all.
func expectTakenOn(d *Datapath, names, all []string) error {
	var attached []string
	for _, a := range d.Attachments() {
		attached = append(attached, a.Interface)
	}
	if !slices.Equal(attached, names) {
		return fmt.Errorf("attached to %v, want %v", attached, names)
	}
	others := slices.DeleteFunc(slices.Clone(all), func(name string) bool { return slices.Contains(names, name) })
	return errors.Join(expectCurrent(d, names), expectAttached(others, false))
}

// TestReach adds, reorders, exchanges and removes interfaces, by each hook and between them. Flows and counters stay,
// the offload of VLAN tags follows, and nothing is left.
func TestReach(t *testing.T) {
	testenv.Root(t)
	all := []string{"veth0", "veth1", "bridge0"}
	for _, test := range []struct {
		name     string
		attempts func(lb.Hook, []attach.Port) []attach.Attempt
		steps    []lb.State
		want     []string
	}{
		{"native XDP", attach.Attempts, []lb.State{stateOn(lb.HookXDP, "veth0", "veth1"), stateOn("", "veth1", "veth0"),
			stateOn("", "veth1"), stateOn("", "veth0")},
			slices.Repeat([]string{"xdp (native)"}, 4)},
		{"generic XDP", attach.Attempts, []lb.State{stateOn(lb.HookTC, "bridge0"), stateOn(lb.HookXDP, "veth0", "bridge0"),
			stateOn("", "veth1")},
			[]string{"tc", "xdp (generic)", "xdp (generic)"}},
		{"TCX", attach.Attempts, []lb.State{stateOn(lb.HookTC, "veth0", "veth1"), stateOn("", "bridge0", "veth0"),
			stateOn("", "veth1"), stateOn("", "veth0", "bridge0", "veth1")},
			slices.Repeat([]string{"tc"}, 4)},
		{"a filter", filterAttempts, []lb.State{stateOn(lb.HookTC, "veth0", "veth1"), stateOn("", "veth1", "bridge0"),
			stateOn("", "veth0")},
			slices.Repeat([]string{"tc"}, 3)},
		{"with the hook", attach.Attempts, []lb.State{stateOn(lb.HookXDP, "veth1"), stateOn(lb.HookTC, "bridge0", "veth0"),
			stateOn(lb.HookXDP, "veth0", "veth1"), stateOn(lb.HookTC, "veth1")},
			[]string{"xdp (native)", "tc", "xdp (native)", "tc"}},
		{"as auto chooses", func(requested lb.Hook, ports []attach.Port) []attach.Attempt {
			return append([]attach.Attempt{{Method: attach.NativeXDP, Reason: "for the test"}},
				attach.Attempts(lb.HookTC, nil)...)
		}, []lb.State{stateOn(lb.HookAuto, "veth0", "veth1"), stateOn(lb.HookAuto, "veth1", "bridge0"), stateOn(lb.HookAuto, "veth1")},
			[]string{"xdp (native)", "tc", "xdp (native)"}},
	} {
		t.Run(test.name, func(t *testing.T) {
			onNICs(t, firstHook(test.steps[0].Hook), test.attempts, []string{"veth0"}, func(d *Datapath) error {
				shared := d.shared
				for i, state := range test.steps {
					if err := d.Apply(state); err != nil {
						return fmt.Errorf("step %d: %w", i, err)
					}
					if err := expectTakenOn(d, state.Interfaces, all); err != nil {
						t.Errorf("step %d: %v", i, err)
					}
					at := d.Attachments()[0]
					if at.String() != test.want[i] || at.Reason == "" {
						t.Errorf("step %d: attached as %+v, want %s", i, at, test.want[i])
					}
					if d.shared != shared {
						t.Errorf("step %d: flows and counters are others", i)
					}
					for _, name := range []string{"veth0", "veth1"} {
						want := len(attach.TagOffloads)
						if at.Hook == lb.HookXDP && slices.Contains(state.Interfaces, name) {
							want = 0
						}
						if got := strippingFeatures(t, name); len(got) != want {
							t.Errorf("step %d: of what hides tags, %v are on of %s, want %d", i, got, name, want)
						}
					}
				}
				return errors.Join(d.Close(), expectAttached(all, false))
			})
		})
	}
}

// firstHook is where a test begins whose first step asks for a hook.
func firstHook(hook lb.Hook) lb.Hook {
	if hook == lb.HookAuto {
		return lb.HookTC
	}
	return hook
}

// TestReachRefused: where an interface cannot be taken or left, packets are taken where they
// were, the error names the interface, and a later change can be made.
func TestReachRefused(t *testing.T) {
	testenv.Root(t)
	all := []string{"veth0", "veth1", "bridge0"}
	before := []string{"veth0", "bridge0"}
	for name, test := range map[string]struct {
		hook     lb.Hook
		attempts func(lb.Hook, []attach.Port) []attach.Attempt
		from     []string
		to       []string
		spoil    failureSetup
		says     []string
		is       error
	}{
		"another XDP program": {lb.HookXDP, attach.Attempts, []string{"veth0"}, []string{"veth1", "veth0"},
			anotherXDP, []string{"veth1", "occupant", "stop its owner"}, attach.ErrBusy},
		"another filter": {lb.HookTC, filterAttempts, before, []string{"veth0", "veth1"}, anotherFilter,
			[]string{"veth1", "the priority"}, attach.ErrBusy},
		"tags that stay hidden": {lb.HookXDP, attach.Attempts, []string{"veth0"}, []string{"veth0", "veth1"},
			blockStripping, []string{"veth1 takes VLAN tags out", "use hook: tc"}, attach.ErrUnsupported},
		"one that cannot be left": {lb.HookTC, attach.Attempts, before, []string{"veth1", "veth0"}, blockSecondHold,
			[]string{"detaching from bridge0 in TCX", "stuck"}, nil},
		"one that does not take the new program": {lb.HookTC, attach.Attempts, before, []string{"veth1", "veth0"},
			func(t *testing.T, d *Datapath) ([]ebpf.ProgramID, func() error, error) {
				last := d.holds[0]
				d.holds[0] = stubbornHold{last}
				return nil, func() error { d.holds[0] = last; return nil }, nil
			}, []string{"swapping the program on veth0", "stubborn"}, nil},
		"no native XDP": {lb.HookXDP, attach.Attempts, []string{"veth0"}, []string{"veth0", "bridge0"},
			func(t *testing.T, d *Datapath) ([]ebpf.ProgramID, func() error, error) {
				return nil, func() error {
					d.attempts = func(lb.Hook, []attach.Port) []attach.Attempt {
						return attach.Attempts(lb.HookTC, nil)
					}
					return nil
				}, nil
			}, []string{"bridge0", "hook: tc may work"}, attach.ErrUnsupported},
		"no such interface": {lb.HookTC, attach.Attempts, before, []string{"veth0", "veth7"},
			func(t *testing.T, d *Datapath) ([]ebpf.ProgramID, func() error, error) {
				return nil, func() error {
					d.findPorts = func([]string) ([]attach.Port, error) {
						return attach.Ports([]string{"veth0", "veth1"})
					}
					return nil
				}, nil
			}, []string{"veth7", "`ip link` lists"}, attach.ErrNoInterface},
		"a program that does not load": {lb.HookTC, attach.Attempts, before, []string{"veth0", "veth1"},
			func(t *testing.T, d *Datapath) ([]ebpf.ProgramID, func() error, error) {
				programs := d.programs
				d.programs = func(lb.Hook) loader.Kind {
					return loader.Kind{Load: func() (*ebpf.CollectionSpec, error) { return nil, errors.New("refused") }}
				}
				return nil, func() error { d.programs = programs; return nil }, nil
			}, []string{"refused"}, nil},
	} {
		t.Run(name, func(t *testing.T) {
			onNICs(t, test.hook, test.attempts, test.from, func(d *Datapath) error {
				program, attached, features := d.Program(), d.Attachments(), len(strippingFeatures(t, "veth1"))
				others, mend, err := test.spoil(t, d)
				if err != nil {
					return err
				}
				err = d.Apply(stateOn("", test.to...))
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
				if err := expectCurrent(d, test.from, others...); err != nil {
					t.Error(err)
				}
				if on := strippingFeatures(t, "veth1"); len(on) != features {
					t.Errorf("of what hides tags of veth1, %v are on, were %d", on, features)
				}
				// It goes on changing as it was, and once it is mended moves.
				if err := errors.Join(d.Apply(lb.State{Services: testState().Services[:1]}), mend(),
					d.Apply(stateOn("", test.to...))); err != nil {
					return err
				}
				if err := expectCurrent(d, portNames(d.current.Ports), others...); err != nil {
					t.Error(err)
				}
				return errors.Join(d.Close(), expectAttached(all, false))
			})
		})
	}
}

func portNames(ports []attach.Port) (names []string) {
	for _, p := range ports {
		names = append(names, p.Name)
	}
	return names
}

// stubbornHold is a hold that takes no other program.
type stubbornHold struct{ attach.Hold }

func (s stubbornHold) Update(*ebpf.Program) error { return errors.New("stubborn") }

// TestKeptReaches takes over the data plane of a process that took packets on other interfaces, or was killed while it
// changed them: flows stay, and no program is left where packets are not to be taken.
func TestKeptReaches(t *testing.T) {
	testenv.Root(t)
	all := []string{"veth0", "veth1", "bridge0", "bridge1"}
	before, after := []string{"veth0", "bridge0"}, []string{"bridge1", "veth1", "veth0"}
	// next makes the generation for the interfaces after, up to its pins.
	next := func(d *Datapath) (*loader.Programs, []attach.Port, error) {
		c, err := d.register.Plan(stateOn("", after...), testTableSize, d.now())
		if err != nil {
			return nil, nil, err
		}
		ports, err := d.findPorts(after)
		if err != nil {
			return nil, nil, err
		}
		memory, _, err := d.makeMemory(c, d.shared)
		if err != nil {
			return nil, nil, err
		}
		d.writeSnapshot(c, ports)
		d.keeper.WriteNumber(memory)
		made, err := d.load(d.programs(lb.HookTC), ports, memory, d.shared)
		return made, ports, err
	}
	attachNew := func(d *Datapath, made *loader.Programs, ports []attach.Port) (keptPorts, error) {
		h := &hookChange{d: d, ports: ports, programs: made, method: d.method}
		stay, err := h.attachNew()
		for _, one := range h.holds {
			if !slices.Contains(d.holds, one) {
				d.holds = append(d.holds, one)
			}
		}
		return stay, err
	}
	for name, dies := range map[string]func(d *Datapath) error{
		"before": func(*Datapath) error { return nil },
		"after its pins": func(d *Datapath) error {
			_, _, err := next(d)
			return err
		},
		"attached to one of those that come": func(d *Datapath) error {
			made, ports, err := next(d)
			if err == nil {
				var h attach.Hold
				h, err = d.attach(made.Programs[0], ports[0], d.method)
				d.holds = append(d.holds, h) // its process has it
			}
			return err
		},
		"attached to those that come": func(d *Datapath) error {
			made, ports, err := next(d)
			if err == nil {
				_, err = attachNew(d, made, ports)
			}
			return err
		},
		"attached to all": func(d *Datapath) error {
			made, ports, err := next(d)
			if err == nil {
				var stay keptPorts
				if stay, err = attachNew(d, made, ports); err == nil {
					err = attach.SwapAll(stay.holds, stay.ports, stay.to, stay.from)
				}
			}
			return err
		},
		"afterwards": func(d *Datapath) error { return d.Apply(stateOn("", after...)) },
	} {
		for _, w := range ofThisKernel(attach.TCX, attach.TCFilter) {
			for what, wanted := range map[string][]string{"the new configuration": after,
				"the old configuration": before} {
				t.Run(name+", "+w.Name+", "+what, func(t *testing.T) {
					testenv.In(t, newNICs(t), func() error {
						k := newRestartRig(t)
						k.attempts = onlyBy(w)
						open := func() (*Datapath, error) {
							d, err := k.open()
							if err == nil {
								d.programs = passProgram
							}
							return d, err
						}
						first, err := open()
						if err != nil {
							return err
						}
						if err := first.Apply(stateOn("", before...)); err != nil {
							return err
						}
						flow := rememberFlow(t, first)
						if err := errors.Join(dies(first), first.Release()); err != nil {
							return err
						}
						again, err := open()
						if err != nil {
							return err
						}
						defer again.Close()
						if !again.Adopted() {
							t.Fatalf("it was not taken over: %q", again.Notes())
						}
						if err := again.Apply(stateOn("", wanted...)); err != nil {
							return err
						}
						if err := expectTakenOn(again, wanted, all); err != nil {
							t.Error(err)
						}
						if _, there := again.shared.Proven.Find(&flow); !there {
							t.Error("a flow is forgotten")
						}
						return errors.Join(again.Close(), expectAttached(all, false))
					})
				})
			}
		}
	}
}
