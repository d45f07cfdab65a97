// SPDX-License-Identifier: Apache-2.0

package datapath

import (
	"encoding/binary"
	"errors"
	"fmt"
	"net"
	"os"
	"path/filepath"
	"slices"
	"strconv"
	"sync"
	"testing"
	"time"

	"github.com/cilium/ebpf"

	"github.com/jeoul/jeoul/internal/balancer/datapath/attach"
	"github.com/jeoul/jeoul/internal/balancer/datapath/libxdp"
	"github.com/jeoul/jeoul/internal/test/testenv"
)

// foreignPrograms are programs of others in the dispatchers of interfaces, which libxdp's own loader has put there: a
// filter that runs before ours and counts, and a program behind it. A nil one is none.
type foreignPrograms struct {
	nics  []*net.Interface
	ids   map[string][]ebpf.ProgramID
	stats *ebpf.Map
	// Frames go to the first interface, one after the other, each once the one before was counted. They have a port of
	// their own, by which the socket of [packets] leaves them out: it has room for some fifty.
	fd     int
	frame  []byte
	stop   chan struct{}
	done   sync.WaitGroup
	sent   uint64
	failed error
	// again counts retransmitted frames.
	again int
}

// attachForeignPrograms has libxdp's loader put programs onto interfaces of the namespace that it is called in.
func attachForeignPrograms(t *testing.T, names ...string) (*foreignPrograms, error) {
	c := &foreignPrograms{ids: map[string][]ebpf.ProgramID{}}
	for _, name := range names {
		nic, err := net.InterfaceByName(name)
		if err != nil {
			return nil, err
		}
		err = errors.Join(loadOnto(name, libxdpFilter+".o", libxdpFilter, 10),
			loadOnto(name, "xdp-dispatcher.o", libxdpPass, 50))
		if err != nil {
			return nil, err
		}
		all, _, err := libxdp.Components(nic.Index)
		if err != nil {
			return nil, err
		}
		c.nics = append(c.nics, nic)
		for _, one := range all {
			c.ids[name] = append(c.ids[name], one.ID)
		}
	}
	var err error
	c.stats, err = mapOf(c.ids[names[0]][0], "xdp_stats_map")
	if err == nil {
		t.Cleanup(func() { c.stats.Close() })
	}
	return c, err
}

// loadOnto has libxdp load one of its own programs onto an interface.
func loadOnto(nic, object, program string, priority int) error {
	return xdpLoader("load", "--mode", "native", "--prio", strconv.Itoa(priority), "--prog-name", program,
		nic, filepath.Join(os.Getenv(libxdpObjects), object))
}

// mapOf opens a program's map of a name.
func mapOf(id ebpf.ProgramID, name string) (*ebpf.Map, error) {
	program, err := ebpf.NewProgramFromID(id)
	if err != nil {
		return nil, err
	}
	defer program.Close()
	info, err := program.Info()
	if err != nil {
		return nil, err
	}
	ids, _ := info.MapIDs()
	for _, id := range ids {
		m, err := ebpf.NewMapFromID(id)
		if err != nil {
			return nil, err
		}
		if info, err := m.Info(); err == nil && info.Name == name {
			return m, nil
		}
		m.Close()
	}
	return nil, fmt.Errorf("program %d has no map %s", id, name)
}

// counted returns how many packets the filter has seen on the first interface.
func (c *foreignPrograms) counted() (sum uint64, err error) {
	for action := range c.stats.MaxEntries() {
		var all []struct{ Packets, Bytes uint64 }
		if err := c.stats.Lookup(action, &all); err != nil {
			return 0, err
		}
		for _, one := range all {
			sum += one.Packets
		}
	}
	return sum, nil
}

// begin sends packets to the first interface until end.
func (c *foreignPrograms) begin(t *testing.T, served *packets) {
	t.Helper()
	if c == nil {
		return
	}
	before, err := c.counted()
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = c.end() })
	stop := make(chan struct{})
	c.fd, c.frame, c.stop, c.sent, c.failed = served.fd, slices.Clone(served.frames[0]), stop, 0, nil
	binary.BigEndian.PutUint16(c.frame[sourcePort:], foreignPort)
	binary.BigEndian.PutUint16(c.frame[udpChecksum:], 0)
	c.failed = c.send(before)
	c.done.Go(func() {
		for c.failed == nil {
			select {
			case <-stop:
				return
			default:
				c.failed = c.send(before)
			}
		}
	})
}

// send sends a packet, and waits until it was counted.
func (c *foreignPrograms) send(before uint64) error {
	deadline := time.Now().Add(testenv.WaitLimit)
	again, err := writeFrame(c.fd, c.frame)
	if c.again += again; err != nil {
		return fmt.Errorf("sending it: %w", err)
	}
	c.sent++
	for ; ; <-time.After(time.Millisecond) {
		is, err := c.counted()
		if err != nil {
			return err
		}
		if is >= before+c.sent {
			return nil
		}
		if time.Now().After(deadline) {
			return fmt.Errorf("of %d packets the filter has seen %d", c.sent, is-before)
		}
	}
}

// sentAgain counts retransmitted frames.
func (c *foreignPrograms) sentAgain() int {
	if c == nil {
		return 0
	}
	return c.again
}

// end stops sending, and returns an error unless every packet has met the filter.
func (c *foreignPrograms) end() error {
	if c == nil || c.stop == nil {
		return nil
	}
	close(c.stop)
	c.done.Wait()
	c.stop = nil
	if c.failed != nil {
		return fmt.Errorf("a packet has not met the filter: %w", c.failed)
	}
	return nil
}

// expectUnchanged returns an error unless each interface's dispatcher runs all of them in their order, with ours among
// them or not.
func (c *foreignPrograms) expectUnchanged(when string) error {
	if c == nil {
		return nil
	}
	for _, nic := range c.nics {
		all, _, err := libxdp.Components(nic.Index)
		if err != nil {
			return fmt.Errorf("%s, %s: %w", when, nic.Name, err)
		}
		var ids []ebpf.ProgramID
		for _, one := range all {
			if !attach.IsOurs(one) {
				ids = append(ids, one.ID)
			}
		}
		if !slices.Equal(ids, c.ids[nic.Name]) {
			return fmt.Errorf("%s, the dispatcher on %s runs %v, want %v", when, nic.Name, ids, c.ids[nic.Name])
		}
	}
	return nil
}

// expectPins returns an error unless an interface has the pins of so many dispatchers.
func expectPins(name string, want int) error {
	nic, err := net.InterfaceByName(name)
	if err != nil {
		return err
	}
	dirs, err := filepath.Glob(fmt.Sprintf("/sys/fs/bpf/xdp/dispatch-%d-*", nic.Index))
	if err == nil && len(dirs) != want {
		return fmt.Errorf("pinned for %s are %v, want %d", name, dirs, want)
	}
	return err
}

// foreignIDs lists all of them.
func (c *foreignPrograms) foreignIDs() (ids []ebpf.ProgramID) {
	if c == nil {
		return nil
	}
	for _, of := range c.ids {
		ids = append(ids, of...)
	}
	return ids
}

// detach lets libxdp's loader take them off.
func (c *foreignPrograms) detach(t *testing.T) {
	t.Helper()
	for _, nic := range c.nics {
		if err := xdpLoader("unload", nic.Name, "--all"); err != nil {
			t.Error(err)
		}
	}
}

// TestCompany checks that the checks of this file find the faults that they are for.
func TestCompany(t *testing.T) {
	needLibxdp(t)
	ns, outside := testenv.Namespace(t), testenv.Namespace(t)
	mac, _ := testenv.Veth(t, testenv.End{Namespace: ns, Name: "veth0"}, testenv.End{Namespace: outside, Name: "peer0"})
	testenv.In(t, outside, func() error { return attachPassXDP(t, "peer0") })
	served := newPackets(t, outside, "peer0", mac)
	testenv.In(t, ns, func() error {
		c, err := attachForeignPrograms(t, "veth0")
		if err != nil {
			return err
		}
		c.begin(t, served)
		if err := errors.Join(c.end(), c.expectUnchanged("in the beginning"), expectPins("veth0", 1)); err != nil {
			return err
		}
		if err := xdpLoader("unload", "veth0", "--id", strconv.Itoa(int(c.ids["veth0"][1]))); err != nil {
			return err
		}
		if c.expectUnchanged("without one") == nil {
			t.Error("that one is gone is not seen")
		}
		c.detach(t)
		if c.expectUnchanged("without any") == nil {
			t.Error("that all are gone is not seen")
		}
		return nil
	})
}
