// SPDX-License-Identifier: Apache-2.0

package hostnet_test

import (
	"testing"

	"github.com/cilium/ebpf"
	"github.com/cilium/ebpf/asm"
	"github.com/vishvananda/netlink"

	"github.com/jeoul/jeoul/internal/host/hostnet"
	"github.com/jeoul/jeoul/internal/host/netdump"
	"github.com/jeoul/jeoul/internal/test/testenv"
)

// TestFilters: filters are attached at both sides, with the queueing discipline that they need, and all of it is
// removed again. While they are attached, Running reports the process.
func TestFilters(t *testing.T) {
	ns := testenv.Namespace(t)
	dir := t.TempDir()
	program, err := ebpf.NewProgram(&ebpf.ProgramSpec{Type: ebpf.SchedCLS, License: "GPL",
		Instructions: asm.Instructions{asm.Mov.Imm(asm.R0, -1), asm.Return()}})
	if err != nil {
		t.Fatal(err)
	}
	defer program.Close()
	running := func() (is bool) {
		testenv.In(t, ns, func() (err error) {
			is, err = hostnet.Running(dir, "test")
			return err
		})
		return is
	}
	if running() {
		t.Error("a process runs before the first")
	}
	c := open(t, ns, dir)
	if !running() {
		t.Error("no process runs, and this one does")
	}
	for _, egress := range []bool{false, true} {
		if err := c.AddFilter("lo", hostnet.Filter{Name: "tested", FD: program.FD(), Egress: egress}); err != nil {
			t.Fatal(err)
		}
	}
	for name, want := range map[string]bool{"tested": true, "another": false} {
		for _, egress := range []bool{false, true} {
			if got, err := c.HasFilter(1, name, egress); err != nil || got != want {
				t.Errorf("the filter %s (egress: %v) is there: %v (%v), want %v", name, egress, got, err, want)
			}
		}
	}
	if err := c.RemoveFilters(1); err != nil {
		t.Fatal(err)
	}
	if got, err := c.HasFilter(1, "tested", true); err == nil && got {
		t.Error("the filter is there when it was removed")
	}
	testenv.In(t, ns, func() error {
		link, err := netlink.LinkByName("lo")
		if err != nil {
			return err
		}
		qdiscs, err := netdump.Consistent(func() ([]netlink.Qdisc, error) {
			return netlink.QdiscList(link)
		})
		for _, q := range qdiscs {
			if q.Type() == "clsact" {
				t.Error("the queueing discipline is there when its filters were removed")
			}
		}
		return err
	})
	if err := c.AddFilter("nowhere", hostnet.Filter{Name: "tested", FD: program.FD()}); err == nil {
		t.Error("a filter is attached to a link that there is not")
	}
	if err := c.Close(); err != nil {
		t.Fatal(err)
	}
	if running() {
		t.Error("a process runs after the end")
	}
}
