// SPDX-License-Identifier: Apache-2.0

package libxdp

import (
	"bytes"
	"errors"
	"reflect"
	"slices"
	"testing"
	"time"

	"github.com/cilium/ebpf"
	"github.com/vishvananda/netlink"
	"golang.org/x/sys/unix"

	"github.com/jeoul/jeoul/internal/test/testenv"
)

func TestConfig(t *testing.T) {
	for _, c := range []config{
		{version: 2, frags: true, slots: []slot{{actions: 1 << 2, priority: 10, flags: frags}}},
		{version: 2},
		{version: 3, bound: true, slots: slices.Repeat([]slot{{actions: 3, priority: 50}}, Slots)},
	} {
		data := c.encode()
		again, err := decode(data)
		if err != nil || !reflect.DeepEqual(again, c) {
			t.Errorf("%+v was written, and %+v read: %v", c, again, err)
		}
	}
	for name, test := range map[string]struct {
		data []byte
		want error
	}{
		"nothing":           {nil, ErrForeign},
		"version 1":         {make([]byte, 84), ErrForeign},
		"a newer version":   {append([]byte{magic, 4, 0, 0}, make([]byte, 124)...), ErrVersion},
		"too short":         {[]byte{magic, 2, 0, 0}, ErrForeign},
		"too many programs": {append([]byte{magic, 2, Slots + 1, 0}, make([]byte, 120)...), ErrForeign},
	} {
		if _, err := decode(test.data); !errors.Is(err, test.want) {
			t.Errorf("%s: %v, want %v", name, err, test.want)
		}
	}
}

func FuzzConfig(f *testing.F) {
	f.Add((&config{version: 2, slots: []slot{{actions: 4, priority: 10}}}).encode())
	f.Add((&config{version: 3, bound: true}).encode())
	f.Fuzz(func(t *testing.T, data []byte) {
		c, err := decode(data)
		if err != nil {
			return
		}
		again, err := decode(c.encode())
		if err != nil || !reflect.DeepEqual(again, c) {
			t.Errorf("%x is read as %+v, and what is written of that as %+v: %v", data, c, again, err)
		}
	})
}

func FuzzDir(f *testing.F) {
	for _, name := range []string{"dispatch-2-17", "dispatch-2", "dispatch--1-3", "dispatch-02-3", "dispatch-2-17-1"} {
		f.Add(name)
	}
	f.Fuzz(func(t *testing.T, name string) {
		if index, id, is := parseDir(name); is && dirName(index, id) != name {
			t.Errorf("%q is read as of interface %d and program %d", name, index, id)
		}
	})
}

func TestSorted(t *testing.T) {
	names := func(all []Component) (names []string) {
		for _, c := range all {
			names = append(names, c.Name+c.tag)
		}
		return names
	}
	got := names(sorted([]Component{
		{Name: "pass", Priority: 50}, {Name: "b", Priority: 10}, {Name: "a", Priority: 10, tag: "2"},
		{Name: "a", Priority: 10, tag: "1", loaded: time.Second}, {Name: "jeoul_xdp", Priority: 20},
	}))
	if want := []string{"a1", "a2", "b", "jeoul_xdp", "pass"}; !slices.Equal(got, want) {
		t.Errorf("they run as %v, want %v", got, want)
	}
}

// TestEmptyDispatcher puts dispatchers without programs on an interface, which takes no right that this test may
// lack: the kernel takes them, they are found, and one is exchanged for the other only where it is there.
func TestEmptyDispatcher(t *testing.T) {
	testenv.Root(t)
	ns, peer := testenv.Namespace(t), testenv.Namespace(t)
	testenv.Veth(t, testenv.End{Namespace: ns, Name: "veth0"}, testenv.End{Namespace: peer, Name: "peer0"})
	testenv.In(t, ns, func() error {
		link, err := netlink.LinkByName("veth0")
		if err != nil {
			return err
		}
		n, err := openNIC(link.Attrs().Index)
		if err != nil {
			return err
		}
		defer n.close()
		var made []*dispatcher
		for _, version := range []byte{2, 3} {
			d, err := config{version: version}.make(nil)
			if err != nil {
				return err
			}
			defer d.close()
			made = append(made, d)
		}
		two, three := made[0], made[1]
		if err := n.exchange(three.program, two.program, false); !errors.Is(err, unix.EEXIST) {
			t.Errorf("in the place of one that is not there: %v", err)
		}
		for _, step := range []struct{ from, to *dispatcher }{{nil, two}, {two, three}} {
			var from *ebpf.Program
			if step.from != nil {
				from = step.from.program
			}
			if err := n.exchange(from, step.to.program, false); err != nil {
				return err
			}
			d, generic, err := read(n)
			if err != nil {
				return err
			}
			if d.id != step.to.id || generic || !bytes.Equal(d.config.encode(), step.to.config.encode()) {
				t.Errorf("there is the dispatcher %d (generic %v) with %+v, want %d with %+v", d.id, generic, d.config,
					step.to.id, step.to.config)
			}
			d.close()
		}
		return n.exchange(three.program, nil, false)
	})
}
