// SPDX-License-Identifier: Apache-2.0

package loxilb

import (
	"errors"
	"io/fs"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/cilium/ebpf"
	"github.com/cilium/ebpf/asm"
	"github.com/google/go-cmp/cmp"
	"github.com/vishvananda/netlink"
	"golang.org/x/sys/unix"

	"github.com/jeoul/jeoul/internal/host/netdump"
	"github.com/jeoul/jeoul/internal/host/sysctl"
	"github.com/jeoul/jeoul/internal/test/testenv"
	"github.com/jeoul/jeoul/internal/weigh/bench/probe"
	"github.com/jeoul/jeoul/internal/weigh/bench/subject"
	"github.com/jeoul/jeoul/internal/weigh/lab"
)

// TestLoxiLBVersion runs a program that prints a version as LoxiLB does.
func TestLoxiLBVersion(t *testing.T) {
	dir := t.TempDir()
	script := "#!/bin/sh\necho loxilb start\necho 'loxilb version: 0.9.8.6-beta 2026_11_24_22h:32m-main'\n"
	if err := os.WriteFile(filepath.Join(dir, loxilbProgram), []byte(script), 0o755); err != nil {
		t.Fatal(err)
	}
	t.Setenv("PATH", dir+":"+os.Getenv("PATH"))
	versions, err := loxilb{}.Versions(t.Context())
	if diff := cmp.Diff(map[string]string{loxilbProgram: "0.9.8.6-beta"}, versions); diff != "" {
		t.Errorf("(-want +got):\n%s", diff)
	}
	_, absent := os.Stat(loxilbObject)
	if absent == nil && err != nil {
		t.Error(err)
	}
	if absent != nil && (!errors.Is(err, probe.ErrNotInstalled) || !strings.Contains(err.Error(), loxilbObject)) {
		t.Errorf("without its eBPF programs: %v", err)
	}
}

func newLoxiLB(t *testing.T) *runningLoxiLB {
	testenv.Root(t)
	l, err := lab.New(t.Context(), lab.Spec{Clients: 1, Servers: 2, Dir: filepath.Join(t.TempDir(), "lab")})
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		if err := l.Close(); err != nil {
			t.Error(err)
		}
	})
	return &runningLoxiLB{setup: subject.Setup{Lab: l}}
}

// do runs f on the balancer, which must not fail.
func (r *runningLoxiLB) do(t *testing.T, f func() error) {
	t.Helper()
	if err := r.setup.Lab.Balancer.Do(f); err != nil {
		t.Fatal(err)
	}
}

// fileSystems returns the types of the file systems in LoxiLB's directories.
func fileSystems() (kinds []int64, err error) {
	for _, dir := range []string{loxilbPins, loxilbLogs} {
		var found unix.Statfs_t
		if err := unix.Statfs(dir, &found); err != nil {
			return nil, err
		}
		kinds = append(kinds, int64(found.Type))
	}
	return kinds, nil
}

func TestLoxiLBFiles(t *testing.T) {
	r := newLoxiLB(t)
	for _, dir := range []string{filepath.Dir(loxilbPins), loxilbPins} {
		if err := os.Mkdir(dir, 0o755); err == nil {
			t.Cleanup(func() { os.Remove(dir) })
		} else if !errors.Is(err, fs.ErrExist) {
			t.Fatal(err)
		}
	}
	outside, err := fileSystems()
	if err != nil {
		t.Fatal(err)
	}
	kinds := func() (kinds []int64) {
		r.do(t, func() (err error) {
			kinds, err = fileSystems()
			return err
		})
		return kinds
	}
	before := kinds()
	if err := loxilbFiles(r.setup.Lab.Balancer, true); err != nil {
		t.Fatal(err)
	}
	if diff := cmp.Diff([]int64{unix.BPF_FS_MAGIC, unix.TMPFS_MAGIC}, kinds()); diff != "" {
		t.Errorf("while it runs (-want +got):\n%s", diff)
	}
	// LoxiLB's script mounts another one.
	r.do(t, func() error { return unix.Mount("bpf", loxilbPins, "bpf", 0, "") })
	if now, err := fileSystems(); err != nil || !cmp.Equal(outside, now) {
		t.Errorf("outside of the laboratory there were %x, and are %x (%v)", outside, now, err)
	}
	for range 2 { // undoing must also work after a failed start
		if err := loxilbFiles(r.setup.Lab.Balancer, false); err != nil {
			t.Fatal(err)
		}
	}
	if diff := cmp.Diff(before, kinds()); diff != "" {
		t.Errorf("(-before +after):\n%s", diff)
	}
}

func TestLoxiLBKeepsSettings(t *testing.T) {
	r := newLoxiLB(t)
	settings := func() (values []string) {
		r.do(t, func() error {
			for _, name := range loxilbSettings {
				value, err := sysctl.Read(name)
				if err != nil {
					return err
				}
				values = append(values, value)
			}
			return nil
		})
		return values
	}
	before := settings()
	if err := r.keepSettings(); err != nil {
		t.Fatal(err)
	}
	r.do(t, func() (err error) {
		for _, name := range loxilbSettings {
			err = errors.Join(err, sysctl.Write(name, "1"))
		}
		return err
	})
	if err := r.undo.All(); err != nil {
		t.Fatal(err)
	}
	if diff := cmp.Diff(before, settings()); diff != "" {
		t.Errorf("(-before +after):\n%s", diff)
	}
}

func TestLoxiLBMeetsNeighbours(t *testing.T) {
	r := newLoxiLB(t)
	if err := r.resolveNeighbours(); err != nil {
		t.Fatal(err)
	}
	for _, host := range r.neighbours() {
		testenv.Eventually(t, subject.UpTimeout, "the balancer knows "+host.Name, func() (known bool) {
			r.do(t, func() error {
				neighbours, err := netdump.Consistent(func() ([]netlink.Neigh, error) {
					return netlink.NeighList(0, netlink.FAMILY_V4)
				})
				for _, n := range neighbours {
					known = known || n.IP.Equal(host.IPv4.AsSlice()) && n.HardwareAddr.String() == host.MAC.String()
				}
				return err
			})
			return known
		})
	}
}

func TestHasProgram(t *testing.T) {
	r := newLoxiLB(t)
	balancer := r.setup.Lab.Balancer
	if err := balancer.Do(func() error { return hasProgram(balancer.Interface) }); err == nil {
		t.Error("a program is where none was put")
	}
	program, err := ebpf.NewProgram(&ebpf.ProgramSpec{Type: ebpf.SchedCLS, License: "GPL",
		Instructions: asm.Instructions{asm.Mov.Imm(asm.R0, 0), asm.Return()}})
	if err != nil {
		t.Fatal(err)
	}
	defer program.Close()
	r.do(t, func() error {
		link, err := netlink.LinkByName(balancer.Interface)
		if err != nil {
			return err
		}
		index := link.Attrs().Index
		return errors.Join(
			netlink.QdiscAdd(&netlink.Clsact{QdiscAttrs: netlink.QdiscAttrs{LinkIndex: index,
				Handle: netlink.MakeHandle(0xffff, 0), Parent: netlink.HANDLE_CLSACT}}),
			netlink.FilterAdd(&netlink.BpfFilter{FilterAttrs: netlink.FilterAttrs{LinkIndex: index,
				Parent: netlink.HANDLE_MIN_INGRESS, Priority: 1, Protocol: unix.ETH_P_ALL},
				Fd: program.FD(), Name: "test", DirectAction: true}),
		)
	})
	r.do(t, func() error { return hasProgram(balancer.Interface) })
}
