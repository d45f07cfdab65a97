// SPDX-License-Identifier: Apache-2.0

package tune

import (
	"cmp"
	"fmt"
	"net"
	"os"
	"path/filepath"
	"slices"
	"strconv"
	"strings"

	"github.com/vishvananda/netlink"

	"github.com/jeoul/jeoul/internal/host/netdump"
	"github.com/jeoul/jeoul/internal/tools/tune/nic"
	"github.com/jeoul/jeoul/internal/tools/tune/plan"
	"github.com/jeoul/jeoul/internal/tools/tune/setting"
)

// Interface has the facts about an interface that values depend on.
type Interface struct {
	Name   string `json:"name"`
	Up     bool   `json:"up"`
	Driver string `json:"driver,omitempty"`
	// Virtual is true if there is no device behind the interface, and therefore no interrupts and rings.
	Virtual bool `json:"virtual"`
	// Node is the NUMA node; -1 if there is none.
	Node int `json:"numa_node"`
	// RX and TX are the current numbers of queues. QueuesMax is the maximum number of combined queues.
	RX         int   `json:"rx_queues"`
	TX         int   `json:"tx_queues"`
	QueuesMax  int   `json:"queues_max,omitempty"`
	RingRXMax  int   `json:"ring_rx_max,omitempty"`
	RingTXMax  int   `json:"ring_tx_max,omitempty"`
	RSSEntries int   `json:"rss_entries,omitempty"`
	IRQs       []IRQ `json:"irqs,omitempty"`
	// foreign is true if /sys shows another network namespace.
	foreign bool
}

func (c *Interface) number(of func(*Interface) int) uint64 {
	if c == nil {
		return 0
	}
	return uint64(max(of(c), 0))
}

// readInterface reads the facts of an interface. The error is ErrInterface if there is no interface of that name.
func readInterface(t setting.Tree, cards nic.Cards, name string) (*Interface, error) {
	if name == "" || strings.ContainsAny(name, "/\x00") || name == "." || name == ".." {
		return nil, fmt.Errorf("%q: %w: that is no interface's name", name, ErrInterface)
	}
	c := &Interface{Name: name, Node: -1}
	if t.Root == "" {
		if err := c.ask(); err != nil {
			return nil, err
		}
	} else if !t.Exists("sys/class/net", name) {
		return nil, fmt.Errorf("%s: %w: there is no such interface; there are %s", name, ErrInterface,
			strings.Join(interfaceNames(t), ", "))
	} else {
		flags, err := strconv.ParseUint(t.Read("sys/class/net", name, "flags"), 0, 32)
		c.Up = err == nil && flags&uint64(1) != 0
	}
	c.Virtual = !t.Exists("sys/class/net", name, "device")
	if node, err := strconv.Atoi(t.Read("sys/class/net", name, "device/numa_node")); err == nil {
		c.Node = node
	}
	c.countQueues(t)
	if !c.Virtual {
		c.IRQs = readIRQs(t, name)
		slices.SortFunc(c.IRQs, func(a, b IRQ) int {
			return cmp.Or(cmp.Compare(a.Queue, b.Queue), cmp.Compare(a.Number, b.Number))
		})
	}
	c.Driver, _ = cards.Get(name, nic.Driver) // unknown drivers are shown as nothing
	for setting, number := range map[string]*int{
		nic.CombinedMax: &c.QueuesMax, nic.RingRXMax: &c.RingRXMax, nic.RingTXMax: &c.RingTXMax,
		nic.RSSEntries: &c.RSSEntries,
	} {
		// Settings that the driver does not support stay 0.
		if text, err := cards.Get(name, setting); err == nil {
			*number, _ = strconv.Atoi(text)
		}
	}
	return c, nil
}

// countQueues counts the queues in sysfs.
func (c *Interface) countQueues(t setting.Tree) {
	entries, err := os.ReadDir(t.Path("sys/class/net", c.Name, "queues"))
	if err != nil {
		return
	}
	for _, entry := range entries {
		if strings.HasPrefix(entry.Name(), "rx-") {
			c.RX++
		} else {
			c.TX++
		}
	}
}

// ask reads the interface in the calling thread's namespace from the kernel, and checks that /sys shows the same
// interface. A process that entered a namespace may still see the previous namespace's /sys, with an interface of the
// same name.
func (c *Interface) ask() error {
	link, err := netlink.LinkByName(c.Name)
	if err != nil {
		var names []string
		if links, listErr := netdump.Links(); listErr == nil {
			for _, l := range links {
				names = append(names, l.Attrs().Name)
			}
		}
		return fmt.Errorf("%s: %w: %v; there are %s", c.Name, ErrInterface, err, strings.Join(names, ", "))
	}
	c.Up = link.Attrs().Flags&net.FlagUp != 0
	c.foreign = !sysfsIsOurs()
	return nil
}

// sysfsIsOurs reports whether the interfaces in /sys are those of the calling thread's namespace, each with the same
// index and address.
func sysfsIsOurs() bool {
	links, err := netdump.Links()
	if err != nil {
		return false
	}
	entries, err := os.ReadDir("/sys/class/net")
	if err != nil {
		return false
	}
	devices := slices.DeleteFunc(entries, func(e os.DirEntry) bool {
		_, err := os.Stat(filepath.Join("/sys/class/net", e.Name(), "ifindex"))
		return err != nil // bonding_masters is a file
	})
	if len(devices) != len(links) {
		return false
	}
	for _, link := range links {
		dir := filepath.Join("/sys/class/net", link.Attrs().Name)
		if readLine(filepath.Join(dir, "ifindex")) != strconv.Itoa(link.Attrs().Index) {
			return false
		}
		if mac := link.Attrs().HardwareAddr; len(mac) > 0 && readLine(filepath.Join(dir, "address")) != mac.String() {
			return false
		}
	}
	return true
}

func interfaceNames(t setting.Tree) []string {
	entries, _ := os.ReadDir(t.Path("sys/class/net")) // on an error, an empty list
	var names []string
	for _, entry := range entries {
		names = append(names, entry.Name())
	}
	return names
}

// card returns the interface's facts that the core plan needs.
func (c *Interface) card() plan.Card {
	card := plan.Card{Name: c.Name, Node: c.Node, MaxQueues: c.QueuesMax, Queues: c.RX, RSSEntries: c.RSSEntries}
	if card.MaxQueues == 0 {
		card.MaxQueues = c.RX
	}
	for _, irq := range c.IRQs {
		card.IRQs = append(card.IRQs, irq.Number)
	}
	return card
}

// notes returns remarks on the interface's peculiarities.
func (c *Interface) notes() []string {
	var notes []string
	if c.Virtual {
		driver := cmp.Or(c.Driver, "unknown")
		notes = append(notes,
			fmt.Sprintf("%s is virtual (driver %s): it has no rings, interrupts or hash of its own, and their items do not apply", c.Name, driver))
	}
	if !c.Up {
		notes = append(notes, fmt.Sprintf("%s is down: `ip link set %s up` before apply", c.Name, c.Name))
	}
	if c.foreign {
		notes = append(notes,
			fmt.Sprintf("/sys shows another network namespace than this one: what is there of %s is not read; `ip netns exec` mounts the right one", c.Name))
	}
	return notes
}
