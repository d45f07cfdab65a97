// SPDX-License-Identifier: Apache-2.0

package iface

import (
	"errors"
	"net/netip"
	"os/exec"
	"strings"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"

	"github.com/jeoul/jeoul/internal/host/namespace"
	"github.com/jeoul/jeoul/internal/test/testenv"
)

var compareAddresses = cmp.Options{
	cmp.Comparer(func(a, b netip.Prefix) bool { return a == b }),
}

// testNetwork is a fresh namespace with a veth pair, watched at one end.
type testNetwork struct {
	t  *testing.T
	ns *namespace.Namespace
}

func newTestNetwork(t *testing.T) *testNetwork {
	testenv.Root(t)
	ns, err := namespace.New()
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { ns.Close() })
	l := &testNetwork{t, ns}
	l.ip("link add ctl0 address 02:00:00:00:00:01 type veth peer name ctl1")
	l.ip("link set ctl0 addrgenmode none")
	l.ip("link set ctl1 up")
	return l
}

// ip runs the iproute2 program in the namespace.
func (l *testNetwork) ip(args string) {
	l.t.Helper()
	program := testenv.Program(l.t, "ip")
	err := l.ns.Do(func() error {
		out, err := exec.Command(program, strings.Fields(args)...).CombinedOutput()
		if err != nil {
			return errors.New("ip " + args + ": " + string(out))
		}
		return nil
	})
	if err != nil {
		l.t.Fatal(err)
	}
}

func (l *testNetwork) watch(names ...string) *Interfaces {
	l.t.Helper()
	var i *Interfaces
	err := l.ns.Do(func() (err error) {
		i, err = Watch(names...)
		return err
	})
	if err != nil {
		l.t.Fatal(err)
	}
	l.t.Cleanup(i.Close)
	return i
}

// first returns the state of the interface that was named first.
func first(i *Interfaces) (State, error) {
	states, err := i.States()
	if err != nil {
		return State{}, err
	}
	return states[0], nil
}

// await reads the states after each signal until the first one is as wanted.
func await(t *testing.T, i *Interfaces, want string, ok func(State, error) bool) {
	t.Helper()
	late := time.After(testenv.WaitLimit)
	for {
		state, err := first(i)
		if ok(state, err) {
			return
		}
		select {
		case <-i.Changes():
		case <-late:
			t.Fatalf("not %s: %+v, %v", want, state, err)
		}
	}
}

func TestState(t *testing.T) {
	l := newTestNetwork(t)
	l.ip("addr add 198.18.0.1/16 dev ctl0")
	l.ip("addr add 198.18.0.100/32 dev ctl0")
	l.ip("addr add 2001:2::1/64 dev ctl0 nodad")
	l.ip("link set ctl0 up")
	l.ip("route add 198.19.5.0/24 dev ctl0")
	l.ip("route add 198.19.6.0/24 via 198.18.0.7")
	l.ip("route add default via 198.18.0.8")
	got, err := first(l.watch("ctl0"))
	if err != nil {
		t.Fatal(err)
	}
	if got.Name != "ctl0" || got.MAC.String() != "02:00:00:00:00:01" || !got.Up {
		t.Errorf("state %+v", got)
	}
	prefix := netip.MustParsePrefix
	want := []netip.Prefix{prefix("198.18.0.1/16"), prefix("198.18.0.100/32"), prefix("2001:2::1/64")}
	if diff := cmp.Diff(want, got.Addresses, compareAddresses); diff != "" {
		t.Errorf("addresses (-want +got):\n%s", diff)
	}
	want = []netip.Prefix{prefix("198.18.0.0/16"), prefix("198.19.5.0/24"), prefix("2001:2::/64")}
	if diff := cmp.Diff(want, got.Subnets, compareAddresses); diff != "" {
		t.Errorf("subnets (-want +got):\n%s", diff)
	}
}

func TestChanges(t *testing.T) {
	l := newTestNetwork(t)
	i := l.watch("ctl0")
	await(t, i, "down at first", func(s State, err error) bool { return err == nil && !s.Up })
	l.ip("link set ctl0 up")
	await(t, i, "up", func(s State, err error) bool { return err == nil && s.Up })
	l.ip("link set ctl1 down")
	await(t, i, "without a carrier", func(s State, err error) bool { return err == nil && !s.Up })
	l.ip("link set ctl0 address 02:00:00:00:00:02")
	await(t, i, "with its new MAC", func(s State, err error) bool {
		return err == nil && s.MAC.String() == "02:00:00:00:00:02"
	})
	l.ip("addr add 198.18.0.1/16 dev ctl0")
	await(t, i, "with its address", func(s State, err error) bool { return err == nil && len(s.Subnets) == 1 })
	l.ip("addr flush dev ctl0")
	await(t, i, "without addresses", func(s State, err error) bool { return err == nil && len(s.Addresses) == 0 })
	l.ip("link del ctl0")
	await(t, i, "gone", func(s State, err error) bool { return err == nil && s.Gone && !s.Up && s.Name == "ctl0" })
	was, err := first(i)
	if err != nil {
		t.Fatal(err)
	}
	l.ip("link add ctl0 address 02:00:00:00:00:09 type veth peer name ctl1")
	await(t, i, "made anew", func(s State, err error) bool {
		return err == nil && !s.Gone && s.Index != was.Index && s.MAC.String() == "02:00:00:00:00:09"
	})
	l.ip("link set ctl1 up")
	l.ip("link set ctl0 up")
	await(t, i, "up again", func(s State, err error) bool { return err == nil && s.Up })
}

// TestSeveral: a change of any interface signals, and the deletion of one does not affect the others.
func TestSeveral(t *testing.T) {
	l := newTestNetwork(t)
	l.ip("link add ctl2 address 02:00:00:00:00:03 type veth peer name ctl3")
	l.ip("link set ctl3 up")
	i := l.watch("ctl0", "ctl2")
	l.ip("link set ctl2 up")
	late := time.After(testenv.WaitLimit)
	for {
		states, err := i.States()
		if err != nil {
			t.Fatal(err)
		}
		if states[0].Name == "ctl0" && !states[0].Up && states[1].Name == "ctl2" && states[1].Up {
			break
		}
		select {
		case <-i.Changes():
		case <-late:
			t.Fatalf("states %+v", states)
		}
	}
	l.ip("link del ctl2")
	states, err := i.States()
	if err != nil || states[0].Gone || !states[1].Gone || states[1].Name != "ctl2" {
		t.Errorf("states %+v, %v, want ctl2 to be gone alone", states, err)
	}
}

// TestFollow replaces the watched interfaces. The states and the signals are then those of the new ones, and an unknown
// name changes nothing.
func TestFollow(t *testing.T) {
	l := newTestNetwork(t)
	l.ip("link add ctl2 address 02:00:00:00:00:03 type veth peer name ctl3")
	l.ip("link set ctl3 up")
	i := l.watch("ctl0")
	if err := i.SetInterfaces([]string{"ctl2", "ctl9"}); !errors.Is(err, ErrNotFound) ||
		!strings.Contains(err.Error(), "ctl9") {
		t.Errorf("error %v, want ErrNotFound that names ctl9", err)
	}
	if s, err := first(i); err != nil || s.Name != "ctl0" {
		t.Errorf("after a refusal: %+v, %v", s, err)
	}
	states, err := i.Lookup([]string{"ctl2", "ctl0"})
	if err != nil || len(states) != 2 || states[0].Name != "ctl2" || states[0].Index == states[1].Index {
		t.Errorf("looked at %+v, %v", states, err)
	}
	if err := i.SetInterfaces([]string{"ctl2"}); err != nil {
		t.Fatal(err)
	}
	l.ip("link del ctl0")
	await(t, i, "down at first", func(s State, err error) bool { return err == nil && s.Name == "ctl2" && !s.Up })
	l.ip("link set ctl2 up")
	await(t, i, "up", func(s State, err error) bool { return err == nil && s.Up })
	if n := len(i.XDPLost()); n != 1 {
		t.Errorf("losses are counted of %d interfaces", n)
	}
	// An interface that is watched further keeps the losses from before the watch.
	i.watched[0].lost = 7
	if err := i.SetInterfaces([]string{"ctl2"}); err != nil || i.watchedInterfaces()[0].lost != 7 {
		t.Errorf("followed further, %d losses are taken for older ones (%v), want 7",
			i.watchedInterfaces()[0].lost, err)
	}
}

// TestSignal: the watch signals a change before the states are read.
func TestSignal(t *testing.T) {
	l := newTestNetwork(t)
	i := l.watch("ctl0")
	l.ip("link set ctl0 up")
	select {
	case <-i.Changes():
	case <-time.After(testenv.WaitLimit):
		t.Fatal("no signal after ctl0 was set up")
	}
	if s, err := first(i); err != nil || s.Index == 0 {
		t.Errorf("after the signal: %+v, %v", s, err)
	}
}

// TestDeletedMeanwhile: an interface that is deleted after its name was found is gone, which a caller tells from an
// error of the kernel.
func TestDeletedMeanwhile(t *testing.T) {
	l := newTestNetwork(t)
	i := l.watch("ctl0")
	if _, err := i.Lookup([]string{"ctl9"}); !errors.Is(err, ErrNotFound) || !strings.Contains(err.Error(), "ctl9") {
		t.Errorf("error %v, want ErrNotFound that names ctl9", err)
	}
	found := i.watchedInterfaces()
	l.ip("link del ctl0")
	if _, err := i.states(found); !errors.Is(err, ErrGone) || !strings.Contains(err.Error(), "ctl0") {
		t.Errorf("error %v, want ErrGone that names ctl0", err)
	}
	if lost := i.XDPLost(); len(lost) != 1 || lost[0] != 0 {
		t.Errorf("losses %v of an interface that is gone, want none", lost)
	}
}

func TestNoSuchInterface(t *testing.T) {
	if _, err := Watch("ctl-none0"); !errors.Is(err, ErrNotFound) {
		t.Errorf("error = %v, want ErrNotFound", err)
	}
}

func FuzzIndexOf(f *testing.F) {
	f.Add([]byte{0, 0, 0, 0, 1, 0, 0, 0})
	f.Add([]byte{})
	f.Fuzz(func(t *testing.T, message []byte) {
		if _, ok := indexOf(message); ok != (len(message) >= 8) {
			t.Errorf("indexOf(%v) = %v", message, ok)
		}
	})
}
