// SPDX-License-Identifier: Apache-2.0

package rules

// kind is a kind of fault.
type kind struct {
	id   string
	harm Harm
	// secondary is true if the fault is usually a consequence of another one. It is then reported last.
	secondary bool
	means     string
	remedies  []Remedy
}

// The names of the faults.
const (
	portsExhausted   = "ports-exhausted"
	conntrackFull    = "conntrack-full"
	forwardingLoop   = "forwarding-loop"
	wrongMAC         = "wrong-mac"
	vipAnswered      = "vip-answered"
	vipMissing       = "vip-missing"
	neighbourFailed  = "neighbour-failed"
	reversePath      = "rp-filter"
	filterDrops      = "filter-drops"
	mtuBlackHole     = "mtu-black-hole"
	listenQueueFull  = "listen-queue-full"
	noRoute          = "no-route"
	backendDown      = "backend-down"
	backendUnhealthy = "backend-unhealthy"
	backendSilent    = "backend-silent"
	balancerDrops    = "balancer-drops"
	tcpMemory        = "tcp-memory"
	softnetBacklog   = "softnet-backlog"
	conntrackInsert  = "conntrack-insert-failed"
	nicDrops         = "nic-drops"
	xdpFailures      = "xdp-failures"
	qdiscDrops       = "qdisc-drops"
	socketBuffer     = "socket-buffer"
	checksums        = "bad-checksums"
	backendSlow      = "backend-slow"
	narrowPath       = "narrow-path"
	busyCore         = "busy-core"
	softnetSqueezed  = "softnet-squeezed"
	synCookies       = "syn-cookies"
	timeWaitFull     = "time-wait-full"
	unevenQueues     = "uneven-queues"
	neighbourTable   = "neighbour-table-full"
	otherDrops       = "kernel-drops"
	kernelLacks      = "kernel-lacks"
	connectionsHang  = "connections-hang"
	retransmits      = "retransmits"
	memberUnreached  = "member-unreached"
	memberUntold     = "member-told-no-flows"
	memberDiffers    = "member-differs"
	memberNames      = "member-equal-names"
	memberBehind     = "member-behind"
	memberVersion    = "member-other-version"
	vrrpTwoActive    = "vrrp-two-active"
	vrrpForeign      = "vrrp-foreign-id"
	vipAtBackup      = "vip-at-backup"
	notDurable       = "state-not-durable"
	sourceOld        = "source-old"
	sourceRight      = "source-right"
	sourceUnclaimed  = "source-unclaimed"
	sourceKept       = "source-kept"
	sourceProblem    = "source-trouble"
	nodeWithoutRule  = "node-without-vip-rule"
	strictARP        = "strict-arp"
)

// Kinds returns the names of the faults, worst first.
func Kinds() []string {
	var ids []string
	for _, k := range kinds {
		ids = append(ids, k.id)
	}
	return ids
}

// kinds are ordered by the number of faults that they explain: the remedy of the first finding is the most likely to
// end the others.
var kinds = []kind{
	{portsExhausted, Outage, false,
		"New connections from this host to that destination fail with EADDRNOTAVAIL (\"cannot assign requested address\").",
		[]Remedy{
			{"local-ports", "Widen the range of local ports."},
			{"tw-reuse", "Let ports in TIME-WAIT be used again (1)."},
			{"", "Keep connections open and use them again, or send from more than one address."}}},
	{conntrackFull, Outage, false,
		"To track a new connection the kernel forgets an old one that is not yet proven; where it finds none, it drops the new one's first packet.",
		[]Remedy{
			{"conntrack-max", "Make the table larger, with a hash table to match (nf_conntrack_buckets)."},
			{"", "Do not track balanced traffic: notrack rules, or no rule with a state at all."},
			{"", "Look at who fills it: `conntrack -L`."}}},
	{forwardingLoop, Outage, false,
		"A backend sends packets for the VIP back instead of taking them: each goes round until its hops are used up, and in mode l2dsr, which leaves the packet as it is, for ever.",
		[]Remedy{
			{"", "See whether the backend is a balancer whose backend is this one (`jeoul status` there), and take one of the two out. Until then: `jeoul backend drain`."},
			{"", "Give the backend the VIP (`jeoul agent --vip ADDRESS` there): a host that forwards and does not have it sends the packet on to the balancer."}}},
	{wrongMAC, Outage, false,
		"Everything that is sent to that address goes to a host that does not have it, and is lost there without a word.",
		[]Remedy{
			{"", "Delete the entry (`ip neigh del ADDRESS dev INTERFACE`): the kernel then asks. If it is configured, correct it where that is done."}}},
	{vipAnswered, Outage, false,
		"Some clients and routers send to that host directly and past the balancer; their connections break whenever another answer is quicker.",
		[]Remedy{
			{"", "Have the backend not answer for the VIP: `jeoul agent --vip ADDRESS` there."},
			{"arp-ignore", "Without the agent: arp_ignore=1 and arp_announce=2 on the backend, with the VIP on lo."},
			{"", "If two balancers answer, one of them must not have the VIP."}}},
	{vrrpTwoActive, Outage, false,
		"Two balancers answer for the VIPs and announce them: neighbours send to the one that announced last, and connections " +
			"move between the two. The other one does not receive this balancer's advertisements, or does not yield to them.",
		[]Remedy{
			{"", "Let protocol 112 pass both ways (224.0.0.18, ff02::12): a filter, a switch that snoops on multicast, or a " +
				"tunnel stops it in one direction."},
			{"", "See whether both have the same VIPs: keepalived ignores advertisements whose list is not its own."}}},
	{vipMissing, Outage, false,
		"What the balancer sends to this backend is dropped there: every connection that is given to it times out.",
		[]Remedy{
			{"", "Give the backend the VIP: `jeoul agent --vip ADDRESS` there, or `ip address add ADDRESS/32 dev lo` with ARP silenced. Until then: `jeoul backend drain`."}}},
	{nodeWithoutRule, Outage, false,
		"The node does not accept packets for the Service's address and port, and routes them back or drops them: connections that are given to it fail with \"no route to host\" or time out.",
		[]Remedy{
			{"", "See whether kube-proxy, or what stands in for it, runs on the node and follows the cluster, and whether the Service's status has the address (`kubectl get service`): kube-proxy takes it from there."},
			{"", "Until then: `kubectl label node NODE node.kubernetes.io/exclude-from-external-load-balancers=`."}}},
	{strictARP, Outage, false,
		"A node answers for a Service's address, which kube-proxy's mode ipvs puts on an interface of each node: clients and routers send to that node, past the balancer.",
		[]Remedy{
			{"", "Set `ipvs.strictARP: true` in kube-proxy's configuration (`kubectl -n kube-system edit configmap kube-proxy`), and restart kube-proxy on each node."},
			{"", "Or use kube-proxy's mode nftables or iptables, which puts no address on nodes."}}},
	{neighbourFailed, Outage, false,
		"Nothing can be sent to that address: connections through it time out or are refused with \"no route to host\".",
		[]Remedy{
			{"", "See whether the host is up and on this segment (`arping ADDRESS`), and whether its address and VLAN are right."}}},
	{reversePath, Outage, false,
		"Packets whose sender would be answered by another interface are dropped on arrival: those clients get no answer at all.",
		[]Remedy{
			{"rp-filter-all",
				"Switch the strict filter off (0), or set it to loose (2), for all and for the interface: the larger of the two counts."},
			{"", "Or route the clients' network by the interface that their packets come in on."}}},
	{filterDrops, Outage, false,
		"A rule, or the policy of a chain (`policy drop` of input), of this host's packet filter drops what clients send to " +
			"the service: their connections time out.",
		[]Remedy{
			{"", "Let the service's port pass, before the rule that drops: `nft list ruleset` shows all, those of iptables too; " +
				"`nft monitor trace` names the rule, once one sets `meta nftrace set 1` for the port."},
			{"", "If it is meant for some clients only, it works: the example says whom it met."}}},
	{mtuBlackHole, Outage, false,
		"Connections are set up and then hang: small packets arrive, large ones are lost, and no router reports that to the sender.",
		[]Remedy{
			{"", "Let ICMP \"fragmentation needed\" (type 3, code 4) and ICMPv6 \"packet too big\" (type 2) through every filter on the way."},
			{"", "Make the MTU the same on the whole segment; with tunnels, larger by what the mode adds."},
			{"mtu-probing",
				"Have TCP find out by itself (1), or bound the segments: `mss` of the service, `jeoul agent --mss`."}}},
	{listenQueueFull, Outage, false,
		"The kernel drops new connections because the program does not accept them quickly enough: clients wait 1, 3, 7 … seconds and then give up.",
		[]Remedy{
			{"", "Give the program more workers, or find out what it waits for."},
			{"somaxconn", "Allow a longer queue, and have the program ask for it (nginx: listen … backlog=N)."}}},
	{noRoute, Outage, false,
		"Packets for destinations without a route are dropped.",
		[]Remedy{{"", "Add the route (`ip route get ADDRESS` says what the kernel would do), or stop what sends there."}}},
	{backendDown, Outage, false,
		"The balancer gives this backend no packets.", // checkStates adds the consequence for its share
		[]Remedy{{"", "`jeoul status` says why; bring the backend back, or take it out of the configuration."}}},
	{backendUnhealthy, Outage, false,
		// checkHealth describes the consequences for its flows
		"The balancer's health checks, or what it answers to clients, say that this backend does not serve.",
		[]Remedy{{"", "`jeoul backend check SERVICE/BACKEND -v` asks it now, and shows every step; look at the program on the backend, and at what filters packets on the path."}}},
	{backendSilent, Outage, false,
		"Connections that are given to this backend are not set up: nothing shows that it ever answered.",
		[]Remedy{{"", "Run `jeoul doctor` on the backend: is the VIP there, does the program listen, does a filter drop (nftables, rp_filter)?"}}},
	{balancerDrops, Loss, false,
		"The balancer itself refuses packets, for the reason that the counter names.",
		[]Remedy{{"", "`jeoul status -v` explains each counter; `jeoul trace --live` shows the packets."}}},
	{tcpMemory, Loss, false,
		"TCP is short of memory: windows shrink, what arrives is thrown away, connections are cut.",
		[]Remedy{
			{"tcp-mem", "Allow TCP more memory (in pages), or connections smaller buffers (tcp_rmem, tcp_wmem)."}}},
	{softnetBacklog, Loss, false,
		"Packets come quicker than a core takes them from its queue, and are dropped before any rule or program sees them.",
		[]Remedy{
			{"netdev-backlog", "Allow a longer queue for short bursts."},
			{"rps", "Spread the interface's packets over more cores (RSS queues, RPS), or keep other work off this one."}}},
	{conntrackInsert, Loss, false,
		"Connections lose their first packets because two claim the same tuple, or the table refuses them: DNS behind NAT is the usual victim.",
		[]Remedy{
			{"", "Do not track this traffic."},
			{"", "Give source NAT more ports (--random-fully) and addresses."}}},
	{nicDrops, Loss, false,
		"The network card or its driver throws packets away before the kernel sees them.",
		[]Remedy{
			{"ring-rx", "Make the receive ring larger (`ethtool -G`)."},
			{"irq-affinity", "Spread the queues over more cores."}}},
	{xdpFailures, Loss, false,
		"Frames that an XDP program sent are lost: the device at the other end did not take them.",
		[]Remedy{
			{"", "A veth's peer needs an XDP program too; a driver needs enough transmit queues; the target must be up. `hook: tc` does without all that."}}},
	{qdiscDrops, Loss, false,
		"The queue of an interface overflows: this host sends more than the link takes.",
		[]Remedy{
			{"txqueuelen", "Make the queue longer for short bursts, or use fq."},
			{"", "If it lasts, the link is full."}}},
	{socketBuffer, Loss, false,
		"A program does not read its UDP socket quickly enough: queries are lost unanswered.",
		[]Remedy{
			{"rmem-max", "Allow larger buffers, and have the program ask for them (SO_RCVBUF)."},
			{"", "Give the program more workers."}}},
	{checksums, Loss, false,
		"Packets arrive damaged, or with a checksum that was never made, and are dropped.",
		[]Remedy{{"", "Switch transmit checksum offload off where frames pass XDP (`ethtool -K … tx off`); else look at the cable and the card."}}},
	{backendSlow, Slow, false,
		"Clients that are given to this backend wait longer than all others.",
		[]Remedy{{"", "Look at the backend (load, disk, a throttled core). Until then: `jeoul backend weight SERVICE/BACKEND` less, or drain it; lc and wlc give it less by themselves."}}},
	{narrowPath, Slow, false,
		"A router between the balancer and that backend takes smaller packets than the balancer's link. The balancer knows that MTU, and sends each client whose packets do not fit the tunnel an ICMP error; clients that get no ICMP errors hang.",
		[]Remedy{
			{"", "Raise the MTU on the way to the backend by what the mode adds, or tell the host of it: `ip route … mtu`."},
			{"", "Bound the segments from the start: `jeoul agent --mss` on the backend."}}},
	{busyCore, Slow, false,
		"One core does nearly all of the packet work: it is the limit while others are idle.",
		[]Remedy{
			{"irq-affinity", "Give queues to other cores."},
			{"rps", "Where there is one queue only, spread by RPS."}}},
	{softnetSqueezed, Slow, false,
		"The kernel often stops with packets left, because its share of time is used up: they wait.",
		[]Remedy{{"netdev-budget", "Allow more packets a round (netdev_budget, netdev_budget_usecs)."}}},
	{synCookies, Slow, false,
		"More connections are half open than the queue holds: a flood of SYNs, or a queue too short. With cookies, connections lose window scaling and SACK where timestamps are off.",
		[]Remedy{
			{"syn-backlog", "Allow more half-open connections, and a longer backlog of the program."},
			{"", "Bound floods at the balancer: `limits.rate`."}}},
	{sourceOld, Risk, false,
		"The last known services stay in force. Changes since then in the followed system (services, pods, nodes) are missing.",
		[]Remedy{
			{"", "The finding says what is not reached and why. Of a cluster: see whether its API server runs, whether this host reaches it, and whether the token of the kubeconfig still holds."},
			{"", "If the program has said nothing: see whether it runs (`systemctl status jeoul-kubernetes`), and what its log says."}}},
	{sourceRight, Risk, false,
		"The program that keeps the source lacks rights: addresses, conditions or Events are not written, or objects are not followed. The services stay in force.",
		[]Remedy{{"", "Give the account the right that the finding names: `kubectl apply -k deploy/kubernetes`, and for Gateways `kubectl apply -k deploy/kubernetes/gateway`."}}},
	{sourceUnclaimed, Risk, false,
		"An object waits for a load balancer, and no controller serves its class: it gets no address.",
		[]Remedy{{"", "Correct its class, or start what serves that class: `jeoul kubernetes --class CLASS`; `--classless` serves Services that have none."}}},
	{sourceKept, Risk, false,
		"The state of what the source follows went back in time, as when a backup of etcd was restored. What vanished by that is still balanced.",
		[]Remedy{{"", "Make the objects again; or restart the program that keeps the source, and what is not there is balanced no longer."}}},
	{sourceProblem, Risk, false,
		"The program that keeps the source reports a problem. The services stay in force.",
		[]Remedy{{"", "The finding says what to do."}}},
	{kernelLacks, Risk, false,
		"A balancer or an agent of jeoul cannot run on this kernel, or was not tested on it.",
		[]Remedy{{"", "The figures say what to do about each."}}},
	{vipAtBackup, Risk, false,
		"Some neighbours of the segment have this balancer's MAC address for a VIP that another balancer holds. For a minute " +
			"after a change of the role this one balances what they send; from then on it leaves it to its kernel, which does not " +
			"have the VIP either.",
		[]Remedy{
			{"", "See that the active balancer announces its VIPs (`vrrp.announce_interval` there is not 0s), and that switches " +
				"and routers let gratuitous ARP and unsolicited neighbour advertisements through."},
			{"", "Find the neighbour (`tcpdump -e` shows its MAC address), and clear its entry: `ip neigh del VIP dev " +
				"INTERFACE`, or `clear arp` on a router."}}},
	{vrrpForeign, Risk, false,
		"Another group of balancers or routers on the segment was given the same VRRP id, with none of these VIPs. Each ignores " +
			"the other, as keepalived does; programs that do not look at the VIPs would yield, and be silent.",
		[]Remedy{{"", "Give one of the two groups another id (`vrrp.id`, keepalived's `virtual_router_id`)."}}},
	{memberDiffers, Loss, false,
		"Another balancer sends new flows of a service to other backends than this one: where routers move a flow from one to the other, its connection breaks.",
		[]Remedy{
			{"", "Compare the two configurations, operations in force (`jeoul backend`), and what each one's health checks say (`jeoul get backends` at both)."}}},
	{memberNames, Risk, false,
		"Two balancers that share the VIPs have one name: one of them is not taken for a member, its table is not compared, and no flows are sent to it.",
		[]Remedy{
			{"", "Give each a name of its own (`members.name`; the host's name where it is not written), and restart it."}}},
	{memberUnreached, Risk, false,
		"Another balancer that shares the VIPs is not reached: its table is not compared, and no flows are handed over. Its own forwarding goes on, if it runs.",
		[]Remedy{
			{"", "See whether it runs, has the same key (`members.key_file`) and this balancer's address under `members.peers`."},
			{"", "Let UDP and TCP through to the port of `members.listen`, both ways."}}},
	{memberUntold, Risk, false,
		"Another balancer is reached, but not at the port where it takes flows: connections that only this one knows end when their packets come to the other.",
		[]Remedy{
			{"", "Let TCP through to `members.flows_port` (the port after that of `listen`), both ways, and give each member a name of its own."}}},
	{memberBehind, Risk, false,
		"Another balancer handles flows more slowly than they are sent: connections break that routers move before it has handled their flows.",
		[]Remedy{
			{"", "See whether its cores are busy (`jeoul doctor` there), and whether the network between members loses packets or is full."},
			{"", "Let fewer services remember each flow: `maglev` and `sh` compute the backend at each balancer."}}},
	{notDurable, Risk, false,
		"The balancer cannot write what a restart needs. It decides and forwards as ever; what the kernel does not keep " +
			"meanwhile is lost if the process is killed, and all of it if the machine is.",
		[]Remedy{
			{"", "Make room in the directory of the file (`df` and `df -i` there), or mount it so that it can be written " +
				"to: it is written again within seconds, without a restart."}}},
	{memberVersion, Risk, false,
		"Another balancer runs another version of the program: while they are being upgraded, that is as it should be; for longer, they may come to balance in another way.",
		[]Remedy{
			{"", "Go on with the upgrade, one balancer after the other (`jeoul get members`)."}}},
	{timeWaitFull, Risk, false,
		"Closed connections are forgotten before their time; late packets of theirs can hit new ones.",
		[]Remedy{{"tw-buckets", "Allow more of them."}}},
	{unevenQueues, Risk, false,
		"One queue of the card gets most packets, and with it one core.",
		[]Remedy{{"rss-udp4",
			"Hash by ports too (`ethtool -N IF rx-flow-hash udp4 sdfn`), or set the indirection table (`ethtool -X`)."}}},
	{neighbourTable, Outage, false,
		"The kernel has no room for more neighbours: new hosts on the segment cannot be reached.",
		[]Remedy{{"neighbours", "Make the table larger (gc_thresh1, 2 and 3)."}}},
	{otherDrops, Loss, true,
		"The kernel drops packets for this reason.",
		[]Remedy{{"", "The reason and the function are the kernel's own names: include/net/dropreason-core.h says what they mean."}}},
	{connectionsHang, Loss, true,
		"These connections were set up, and then nothing of what is sent arrives: their peers went away, or large packets are lost on the way (a black hole). The peers answer no pings, so the cause cannot be determined from here.",
		[]Remedy{{"mtu-probing",
			"If users do complain: let TCP find out by itself what passes, and look for filters that drop ICMP."}}},
	{retransmits, Slow, true,
		"TCP sends much of its data again: it was lost, here or on the way, or the answer was.",
		[]Remedy{{"", "Look at the other findings, and run `jeoul doctor` at the other end and on the balancer."}}},
}

// finding returns a finding of a kind, with the consequence and remedies of the kind.
func finding(id, title string, seen ...Figure) Finding {
	for _, k := range kinds {
		if k.id == id {
			return Finding{Kind: id, Harm: k.harm, Title: title, Seen: seen, Means: k.means, Remedies: k.remedies}
		}
	}
	panic("doctor: no kind " + id)
}
