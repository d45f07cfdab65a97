// SPDX-License-Identifier: Apache-2.0

// Package lab builds the laboratory: hosts that are Linux network namespaces on one layer-2 segment, with no route out.
// Load generators run and balancers are measured inside it, and nothing of it is left when it is closed.
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
// The VIPs, 198.18.0.100 and 2001:2::100, are part of the address plan but on no host: the subject adds them where it
// needs them. The addresses come from the ranges reserved for benchmarking (RFC 2544 section C.2.2 and RFC 5180 section
// 8). ID is the lab's four hexadecimal digits: several labs may exist at once.
//
// # What is set, and why
//
// Every device has GRO on and TSO off: a veth has a NAPI instance only with GRO (or XDP), and takes frames into it only
// from a peer without TSO. That makes the kernel's work for each hop the work of a device, which [Host.CPU] can charge
// to the host of the device, with the help of package softirq. It also shows whether the queue of a device, which one
// core serves, is full. A thread for each device would show that, too, but costs a context switch for each hop, which
// the balanced subjects would pay and the baseline would not.
//
// Transmit checksum offload is off on all hosts and on the switch's port to the balancer, because an XDP frame cannot
// carry an incomplete checksum. It is the same for all subjects, and no disadvantage to proxies: with the balancer's
// offloads and TSO on, HAProxy served as many requests (measured, ab and 5 KiB files: 6,700 a second against 6,800).
//
// The switch's port to the balancer has an XDP program that passes everything. Without it, the frames of an XDP_TX on
// the other side would vanish. [Lab.AcceptXDP] detaches it for subjects that do not need it.
//
// A TC program on every port sends frames straight to the port of their destination MAC address; the bridge sees only
// broadcasts. A separate switch would take no CPU time from the subjects, so this one takes as little as it can.
//
// Every device has a queueing discipline, which holds a sender back where a bare veth would drop its frames. Each
// device has one queue, so a host's kernel work uses one core at most.
//
// [Lab.Offload] gives the links TSO and checksum offload again, and removes the queueing disciplines, for loads in
// which the laboratory's own hops must cost least. Packets are then in the core's own queue, where package softirq
// distinguishes them one by one. [Lab.Forward], [Lab.DetourReplies] and [Lab.DetourRequests] send packets through the
// balancer, for subjects that need both directions. No host sends ICMP redirects, which would announce a shorter path
// on the one segment.
//
// [Spec.CoreQueues] gives every device a queue for each core instead, and no queueing discipline, for trials in which
// the work of one core must not wait for that of another. [Spec.BackQueues] gives a queue for each core only to the
// frames that the balancer sends by XDP, and leaves the queueing disciplines, so that nothing on the path loses a
// frame. [Spec.Wire] is like CoreQueues, for loads of packets: the switch forwards in native XDP, and its program is on
// every port, so that frames of XDP arrive whatever host sends them, and take the same path with every subject.
// [Spec.Attacker] adds a host that floods the others.
//
// [Spec.Containers] makes the balancer a container host: servers have a veth into a bridge on the balancer (br0,
// 198.19.0.1/16 and 2001:2:0:1::1/64) and their default routes through it, and are 198.19.2.NN and 2001:2:0:1::2:NN.
// Everything started on the balancer then runs in a separate cgroup, which the lab makes at the root of cgroup v2 and
// removes.
//
// Congestion control is cubic, per route: BBR's pacing makes bulk figures vary. Duplicate address detection, router
// solicitations and autoconfiguration are off, so that nothing waits and no host sends packets by itself. ARP and NDP
// are real: no neighbour is preset, except between clients and servers where they are more than the kernel's neighbour
// table has room for; its limits belong to the machine and are not changed. The first document's sysctls are set as far
// as they are per namespace; the others are named in [Lab.Notes].
//
// # Life
//
// A lab holds a lock on /run/jeoul-labs/ID.lock. When its owner dies, even by SIGKILL, the lock is released, and the
// next [New] or [CleanStale] removes the processes, namespaces, mounts, cgroup and directory that it left.
package lab
