// SPDX-License-Identifier: Apache-2.0

package tune

import (
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"regexp"
	"strconv"
	"strings"

	"github.com/prometheus/procfs"
	"k8s.io/utils/cpuset"

	"github.com/jeoul/jeoul/internal/host/sysctl"
	"github.com/jeoul/jeoul/internal/tools/tune/plan"
	"github.com/jeoul/jeoul/internal/tools/tune/setting"
)

// Facts are the facts about a host that values depend on.
type Facts struct {
	Kernel      string        `json:"kernel"`
	MemoryBytes uint64        `json:"memory_bytes"`
	Topology    plan.Topology `json:"-"`
	CPUs        int           `json:"cpus"`
	Nodes       int           `json:"numa_nodes"`
	CommandLine []string      `json:"kernel_command_line,omitempty"`
	// Namespace is true in a network namespace other than the machine's initial one. Settings that do not belong to the
	// namespace are then left unchanged.
	Namespace bool `json:"network_namespace"`
	Conntrack bool `json:"connections_tracked"`
	// Notes name the facts that could not be read.
	Notes []string `json:"notes,omitempty"`
	// machine is the content of /etc/machine-id, and boot the kernel's boot_id.
	machine, boot string
}

// readFacts reads the host's facts. It notes missing facts; missing CPUs are an error.
func readFacts(t setting.Tree) (*Facts, error) {
	f := &Facts{
		Kernel:  t.Read("proc/sys/kernel/osrelease"),
		boot:    t.Read("proc/sys/kernel/random/boot_id"),
		machine: t.Read("etc/machine-id"),
		// Only the initial network namespace has it.
		Namespace: !t.Exists("proc/sys/net/core/netdev_max_backlog"),
		Conntrack: t.Exists("proc/sys/net/netfilter/nf_conntrack_max"),
	}
	proc, err := procfs.NewFS(t.Path("proc"))
	if err != nil {
		return nil, fmt.Errorf("read the host's facts: %w", err)
	}
	if memory, err := proc.Meminfo(); err == nil && memory.MemTotalBytes != nil {
		f.MemoryBytes = *memory.MemTotalBytes
	} else {
		f.note("the size of the memory", err)
	}
	if f.CommandLine, err = proc.CmdLine(); err != nil {
		f.note("the kernel's command line", err)
	}
	if f.Topology, err = readTopology(t); err != nil {
		return nil, fmt.Errorf("read the host's facts: %w", err)
	}
	f.CPUs, f.Nodes = f.Topology.Online().Size(), len(f.Topology.Nodes)
	return f, nil
}

func (f *Facts) note(what string, err error) {
	if err == nil {
		err = errors.New("it is not there")
	}
	f.Notes = append(f.Notes, fmt.Sprintf("%s could not be read: %v", what, err))
}

// readTopology reads which CPUs are online, and the node and core of each.
func readTopology(t setting.Tree) (plan.Topology, error) {
	const cpuDir = "sys/devices/system/cpu"
	text := t.Read(cpuDir, "online")
	online, err := cpuset.Parse(text)
	if err != nil || online.IsEmpty() {
		return plan.Topology{}, fmt.Errorf("%s says %q, which is no list of CPUs", t.Path(cpuDir, "online"), text)
	}
	top := plan.Topology{Nodes: map[int]cpuset.CPUSet{}, Siblings: map[int]cpuset.CPUSet{}}
	nodes, _ := filepath.Glob(t.Path("sys/devices/system/node/node[0-9]*")) // the pattern is valid
	for _, dir := range nodes {
		number, err := strconv.Atoi(strings.TrimPrefix(filepath.Base(dir), "node"))
		list, err2 := cpuset.Parse(readLine(filepath.Join(dir, "cpulist")))
		if err == nil && err2 == nil && !list.Intersection(online).IsEmpty() {
			top.Nodes[number] = list.Intersection(online)
		}
	}
	if !top.Online().Equals(online) {
		top.Nodes = map[int]cpuset.CPUSet{0: online}
	}
	for _, cpu := range online.List() {
		core, err := cpuset.Parse(t.Read(cpuDir, fmt.Sprintf("cpu%d/topology/thread_siblings_list", cpu)))
		if err == nil && core.Contains(cpu) {
			top.Siblings[cpu] = core
		}
	}
	return top, nil
}

func readLine(path string) string {
	data, err := os.ReadFile(path)
	if err != nil {
		return ""
	}
	return sysctl.OneLine(string(data))
}

// pageBytes returns the size of a page. It is this machine's even for a fake tree, which has no pages of its own:
// values in pages are computed from memory_bytes.
func pageBytes() uint64 { return uint64(os.Getpagesize()) }

// fact returns a function that looks up a number for a value. Facts of an interface are from card.
func (f *Facts) fact(card *Interface) func(string) (uint64, bool) {
	return func(name string) (uint64, bool) {
		n := uint64(0)
		switch name {
		case ofMemory:
			n = f.MemoryBytes
		case ofPages:
			n = f.MemoryBytes / pageBytes()
		case ofCores:
			n = uint64(f.CPUs)
		case ofRingRX:
			n = card.number(func(c *Interface) int { return c.RingRXMax })
		case ofRingTX:
			n = card.number(func(c *Interface) int { return c.RingTXMax })
		}
		return n, n > 0
	}
}

// older reports whether the kernel is older than a version.
func (f *Facts) older(version string) bool {
	want, ok1 := parseVersion(version)
	have, ok2 := parseVersion(f.Kernel)
	return ok1 && ok2 && (have[0] < want[0] || have[0] == want[0] && have[1] < want[1])
}

// IRQ is an interrupt of a card's queue.
type IRQ struct {
	Number int    `json:"number"`
	Queue  int    `json:"queue"`
	Name   string `json:"name"`
}

// queueName matches a queue's number in an interrupt's name: eth0-TxRx-3, mlx5_comp3@pci:0000:3b:00.0, virtio0-input.3,
// eth0-Tx-Rx-3, eth0-rx-3.
var queueName = regexp.MustCompile(`(?i)(?:txrx|tx-rx|input|output|comp|queue|rx|tx|fp|cq)[-_.]?(\d+)`)

// parseInterrupts returns the names in /proc/interrupts by interrupt number. Its columns are the number, a count for
// each CPU, the chip, the hardware's number, and the name.
func parseInterrupts(text string) map[int]string {
	names := map[int]string{}
	for line := range strings.Lines(text) {
		number, rest, ok := strings.Cut(line, ":")
		n, err := strconv.Atoi(strings.TrimSpace(number))
		fields := strings.Fields(rest)
		if !ok || err != nil || n < 0 || len(fields) == 0 {
			continue
		}
		names[n] = fields[len(fields)-1]
	}
	return names
}

// readIRQs returns the interrupts of a card's queues: the device's interrupts whose names contain a queue's number.
func readIRQs(t setting.Tree, name string) []IRQ {
	var dirs []fs.DirEntry
	// A virtio card's interrupts are those of its parent.
	for _, dir := range []string{"device/msi_irqs", "device/../msi_irqs"} {
		// filepath.Join would remove ".." before the link is followed.
		if found, err := os.ReadDir(t.Path("sys/class/net", name) + "/" + dir); err == nil {
			dirs = found
			break
		}
	}
	data, err := os.ReadFile(t.Path("proc/interrupts"))
	if err != nil {
		return nil
	}
	names := parseInterrupts(string(data))
	var irqs []IRQ
	for _, dir := range dirs {
		number, err := strconv.Atoi(dir.Name())
		match := queueName.FindStringSubmatch(names[number])
		if err != nil || match == nil {
			continue
		}
		if queue, err := strconv.Atoi(match[1]); err == nil {
			irqs = append(irqs, IRQ{number, queue, names[number]})
		}
	}
	return irqs
}
