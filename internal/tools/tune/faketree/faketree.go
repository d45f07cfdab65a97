// SPDX-License-Identifier: Apache-2.0

// Package faketree makes a file system that simulates a machine's /proc, /sys and /etc, as far as jeoul tune reads
// them, for tests of other machines.
package faketree

import (
	"fmt"
	"maps"
	"os"
	"path/filepath"
	"slices"
	"strconv"
	"strings"

	"github.com/jeoul/jeoul/internal/host/sysctl"
	"github.com/jeoul/jeoul/internal/tools/tune/nic"
)

// Spec describes the machine.
type Spec struct {
	// CPUs is the number of hardware threads, spread evenly over Nodes. With SMT, the second half of a node's threads
	// are the second threads of the cores of its first half.
	CPUs, Nodes int
	SMT         bool
	// MemoryBytes is the machine's memory.
	MemoryBytes uint64
	// Card is the name of its network card on node CardNode. It has Queues queues, all in use, and RSSEntries entries
	// in the indirection table. Without Queues it is virtual.
	Card       string
	CardNode   int
	Queues     int
	RSSEntries int
	Down       bool
}

// sysctls are the kernel's default values, as on a large machine with Linux 6.18.
var sysctls = map[string]string{
	"kernel.osrelease": "6.18.0", "kernel.random.boot_id": "6b0f7d0a-1111-4222-8333-444455556666",
	"kernel.numa_balancing": "1", "kernel.bpf_stats_enabled": "0",
	"vm.swappiness": "60", "fs.file-max": "9223372036854775807", "fs.nr_open": "1048576",
	"net.core.somaxconn": "4096", "net.core.netdev_max_backlog": "1000", "net.core.netdev_budget": "300",
	"net.core.netdev_budget_usecs": "2000", "net.core.rmem_max": "212992", "net.core.wmem_max": "212992",
	"net.core.rmem_default": "212992", "net.core.wmem_default": "212992", "net.core.bpf_jit_enable": "1",
	"net.ipv4.tcp_max_syn_backlog": "4096", "net.ipv4.tcp_syncookies": "1", "net.ipv4.tcp_abort_on_overflow": "0",
	"net.ipv4.ip_local_port_range": "32768\t60999", "net.ipv4.tcp_tw_reuse": "2",
	"net.ipv4.tcp_max_tw_buckets": "262144",
	"net.ipv4.tcp_fin_timeout":    "60", "net.ipv4.tcp_timestamps": "1", "net.ipv4.tcp_window_scaling": "1",
	"net.ipv4.tcp_slow_start_after_idle": "1", "net.ipv4.tcp_mtu_probing": "0", "net.ipv4.tcp_syn_retries": "6",
	"net.ipv4.tcp_keepalive_time": "7200", "net.ipv4.tcp_rmem": "4096\t131072\t33554432",
	"net.ipv4.tcp_wmem": "4096\t16384\t4194304",
	"net.ipv4.tcp_mem":  "1542591\t2056790\t3085182", "net.ipv4.tcp_max_orphans": "262144", "net.ipv4.ip_forward": "0",
	"net.ipv4.conf.all.arp_ignore": "0", "net.ipv4.conf.all.arp_announce": "0", "net.ipv4.conf.all.rp_filter": "0",
	"net.ipv4.conf.all.send_redirects": "1", "net.ipv6.conf.all.disable_ipv6": "0",
	"net.ipv4.neigh.default.gc_thresh3": "1024",
	"net.netfilter.nf_conntrack_max":    "262144", "net.netfilter.nf_conntrack_buckets": "262144",
}

// ofCard are the sysctls of an interface.
var ofCard = map[string]string{
	"net/ipv4/conf/%s/arp_notify": "0", "net/ipv4/conf/%s/rp_filter": "1",
	"net/ipv6/conf/%s/ndisc_notify": "0", "net/ipv6/conf/%s/proxy_ndp": "0",
}

// settings returns the ethtool settings of a card.
func (s Spec) settings() map[string]string {
	queues := strconv.Itoa(s.Queues)
	return map[string]string{
		nic.Driver: "ice", nic.RingRX: "512", nic.RingTX: "256", nic.RingRXMax: "8160", nic.RingTXMax: "8160",
		nic.Combined: queues, nic.CombinedMax: queues, nic.AdaptiveRX: "on", nic.CoalesceRXUsecs: "50",
		nic.CoalesceRXFrames: "0",
		nic.HashTCP4:         "sdfn", nic.HashTCP6: "sdfn", nic.HashUDP4: "sd", nic.HashUDP6: "sd",
		nic.RSSEntries: strconv.Itoa(s.RSSEntries), nic.RSSKey: "6d:5a:56:da:25:5b:0e:c2",
		nic.Feature + "rx-gro": "on", nic.Feature + "rx-lro": "on", nic.Feature + "rx-gro-hw": "on",
		nic.Feature + "rx-vlan-hw-parse": "on", nic.Feature + "tx-tcp-segmentation": "on",
	}
}

// tree is a file tree under construction. It keeps the first error.
type tree struct {
	root string
	err  error
}

func (t *tree) write(path, text string) {
	if t.err != nil {
		return
	}
	path = filepath.Join(t.root, path)
	if t.err = os.MkdirAll(filepath.Dir(path), 0o755); t.err == nil {
		t.err = os.WriteFile(path, []byte(text+"\n"), 0o644)
	}
}

// Build makes the tree in a directory.
func Build(root string, s Spec) error {
	t := &tree{root: root}
	for _, name := range slices.Sorted(maps.Keys(sysctls)) {
		path, err := sysctl.Relative(name)
		if err != nil {
			return err
		}
		t.write("proc/sys/"+path, sysctls[name])
	}
	t.write("proc/meminfo", fmt.Sprintf("MemTotal:       %d kB", s.MemoryBytes>>10))
	t.write("proc/cmdline", "BOOT_IMAGE=/boot/vmlinuz root=/dev/sda1 ro quiet")
	t.write("proc/1/limits", "Limit                     Soft Limit           Hard Limit           Units     \n"+
		"Max open files            1024                 1048576              files     ")
	t.write("etc/machine-id", "0123456789abcdef0123456789abcdef")
	t.write("var/lib/README", "other programs' state")
	t.write("etc/default/grub", "GRUB_CMDLINE_LINUX=\"quiet\"")
	t.write("services/irqbalance", "running")
	t.write("sys/module/nf_conntrack/parameters/hashsize", "65536")
	if t.err == nil {
		t.err = os.Symlink("1", filepath.Join(root, "proc/self"))
	}
	t.processors(s)
	t.card(s)
	return t.err
}

// processors writes the CPUs and nodes.
func (t *tree) processors(s Spec) {
	t.write("sys/devices/system/cpu/online", span(0, s.CPUs))
	each := s.CPUs / s.Nodes
	for node := range s.Nodes {
		t.write(fmt.Sprintf("sys/devices/system/node/node%d/cpulist", node), span(node*each, each))
	}
	for cpu := range s.CPUs {
		dir := fmt.Sprintf("sys/devices/system/cpu/cpu%d/", cpu)
		siblings := strconv.Itoa(cpu)
		if half := each / 2; s.SMT {
			first := cpu/each*each + cpu%half
			siblings = fmt.Sprintf("%d,%d", first, first+half)
		}
		t.write(dir+"topology/thread_siblings_list", siblings)
		t.write(dir+"cpufreq/scaling_governor", "schedutil")
	}
}

func span(from, count int) string {
	if count == 1 {
		return strconv.Itoa(from)
	}
	return fmt.Sprintf("%d-%d", from, from+count-1)
}

// card writes the network card, its queues and its interrupts.
func (t *tree) card(s Spec) {
	dir := "sys/class/net/" + s.Card + "/"
	flags := "0x1003"
	if s.Down {
		flags = "0x1002"
	}
	t.write(dir+"flags", flags)
	t.write(dir+"tx_queue_len", "1000")
	t.write(dir+"threaded", "0")
	for name, value := range ofCard {
		t.write("proc/sys/"+fmt.Sprintf(name, s.Card), value)
	}
	if s.Queues == 0 {
		t.write(dir+"queues/rx-0/rps_cpus", "0")
		t.write(dir+"queues/tx-0/xps_cpus", "0")
		return
	}
	t.write(dir+"device/numa_node", strconv.Itoa(s.CardNode))
	zero := strings.TrimSuffix(strings.Repeat("00000000,", (s.CPUs+31)/32), ",")
	const firstIRQ = 100
	interrupts := "            " + strings.Repeat("CPU        ", s.CPUs) + "\n"
	interrupt := func(irq int, name string) {
		interrupts += fmt.Sprintf("%4d: %s  IR-PCI-MSIX-0000:3b:00.0 %d-edge      %s\n", irq,
			strings.Repeat("          0 ", s.CPUs), irq, name)
		t.write(fmt.Sprintf("%sdevice/msi_irqs/%d", dir, irq), "msix")
		t.write(fmt.Sprintf("proc/irq/%d/smp_affinity_list", irq), span(0, s.CPUs))
	}
	interrupt(firstIRQ-1, "ice-0000:3b:00.0:misc")
	for queue := range s.Queues {
		interrupt(firstIRQ+queue, fmt.Sprintf("ice-%s-TxRx-%d", s.Card, queue))
		t.write(fmt.Sprintf("%squeues/rx-%d/rps_cpus", dir, queue), zero)
		t.write(fmt.Sprintf("%squeues/tx-%d/xps_cpus", dir, queue), zero)
	}
	t.write("proc/interrupts", interrupts)
	if t.err == nil {
		t.err = os.MkdirAll(filepath.Join(t.root, "ethtool"), 0o755)
	}
	if t.err == nil {
		t.err = nic.Save(filepath.Join(t.root, "ethtool"), s.Card, s.settings())
	}
}

// Snapshot returns the text of every file of the tree, and the target of every link, by path. A link's path ends with
// "@".
func Snapshot(root string) (map[string]string, error) {
	files := map[string]string{}
	err := filepath.WalkDir(root, func(path string, entry os.DirEntry, err error) error {
		if err != nil {
			return err
		}
		name := strings.TrimPrefix(path, root)
		switch {
		case entry.Type()&os.ModeSymlink != 0:
			target, err := os.Readlink(path)
			files[name+"@"] = target
			return err
		case entry.IsDir():
			files[name+"/"] = ""
			return nil
		}
		data, err := os.ReadFile(path)
		files[name] = sysctl.OneLine(string(data))
		return err
	})
	return files, err
}
