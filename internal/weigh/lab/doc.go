// SPDX-License-Identifier: Apache-2.0

// Package lab builds the laboratory: hosts that are Linux network namespaces on
// one layer-2 segment, with no route out. Load is driven and balancers are
// weighed inside it, and nothing of it is left when it is closed.
//
//	namespace jeoul-ID-switch
//	+--------------------------------------------------------------------+
//	|                              br0 (bridge)                          |
//	|     p-client01-ID     p-balancer-ID     p-web01-ID    p-web02-ID   |
//	+-----------|-----------------|----------------|-------------|-------+
//	            | veth            | veth           | veth        | veth
//	+-----------|------+ +--------|--------+ +-----|------+ +----|-------+
//	|   client01-ID    | |   balancer-ID   | |  web01-ID  | |  web02-ID  |
//	|  198.18.1.1/16   | |  198.18.0.1/16  | | 198.18.2.1 | | 198.18.2.2 |
//	|  2001:2::1:1/64  | |  2001:2::1/64   | | 2001:2::2:1| | 2001:2::2:2|
//	+------------------+ +-----------------+ +------------+ +------------+
//	 jeoul-ID-client01    jeoul-ID-balancer   jeoul-ID-web01  jeoul-ID-web02
//
// The VIPs, 198.18.0.100 and 2001:2::100, are part of the address plan but on no
// host: the subject puts them where it wants them. The addresses come from the
// ranges reserved for benchmarking (RFC 2544 section C.2.2 and RFC 5180 section
// 8). ID is the lab's four hexadecimal digits: several labs may live at once.
//
// # What is set, and why
//
// Every device has GRO on and TSO off: a veth has a NAPI instance with GRO (or
// XDP) only, and takes frames into it only from a peer without TSO. That makes
// the kernel's work for each hop the work of a device, which can be charged to
// the host it belongs to: [Host.CPU], with the help of package softirq; and a device's
// queue that is one core's can be seen to be full. A thread
// for each device would tell it too, but costs a context switch a hop, which the
// balanced subjects would pay for and the baseline would not.
//
// Transmit checksum offload is off on all hosts and on the switch's port to the
// balancer, since an XDP frame cannot carry a checksum that is still to be made.
// It is the same for all subjects, and no disadvantage to proxies: with the
// balancer's offloads and TSO on, HAProxy served as many requests (measured, ab and
// 5 KiB files: 6,700 a second against 6,800).
//
// The switch's port to the balancer has an XDP program that passes everything,
// without which the frames of an XDP_TX on the other side would vanish;
// [Lab.AcceptXDP] takes it off for subjects that do not need it.
//
// A TC program on every port sends frames straight to the port of their MAC
// address; the bridge sees broadcasts only. A switch of its own would take
// nothing from what is weighed, so this one takes as little as it can.
//
// Every device has a queueing discipline, which holds a sender back where a bare
// veth would drop its frames. Each device has one queue, so a host's kernel work
// has one core at most.
//
// [Lab.Offload] gives the links TSO and checksum offload back, and takes the
// queueing disciplines away, for loads to which the laboratory's own hops shall cost
// least; packets are in the core's own queue then, where package softirq tells them
// apart one by one. [Lab.Forward], [Lab.DetourReplies] and [Lab.DetourRequests] send
// packets through the balancer, for subjects that both directions must pass; no
// host sends ICMP redirects, which would tell of a shorter way on the one segment.
//
// [Spec.CoreQueues] gives every device a queue for each core instead, and no
// queueing discipline, for trials in which what one core does must not wait behind
// what another does. [Spec.BackQueues] does the first for what the balancer sends by XDP alone, and
// leaves the queueing disciplines, so that nothing on the way loses a frame. [Spec.Wire] is that too, for loads of
// packets: the switch forwards in native XDP, and its program is on every port, so that frames of XDP arrive whatever
// host sends them, and have the same way past every subject. [Spec.Attacker] adds a host that floods the others.
//
// [Spec.Containers] makes the balancer a container host: servers have a veth into a bridge of
// its own (br0, 198.19.0.1/16 and 2001:2:0:1::1/64) and their default routes by that, and
// are 198.19.2.NN and 2001:2:0:1::2:NN. What is started on the balancer runs in a cgroup of
// its own then, which the lab makes at the root of cgroup v2 and removes.
//
// Congestion control is cubic, per route: BBR's pacing makes bulk figures swing.
// Duplicate address detection, router solicitations and autoconfiguration are
// off, so nothing waits and nothing chatters. ARP and NDP are real: no neighbour
// is preset, but for clients and servers among each other where they are more than the
// kernel's table has room for, whose limits are the machine's and untouched. The first
// document's sysctls are set as far as they are a namespace's own; the others are
// named in [Lab.Notes].
//
// # Life
//
// A lab holds a lock on /run/jeoul/labs/ID.lock. When its owner dies, even by
// SIGKILL, the lock is free, and the next [New] or [CleanStale] removes the
// processes, namespaces, mounts, cgroup and directory that it left.
package lab
