// SPDX-License-Identifier: Apache-2.0

package config

import (
	"cmp"
	"fmt"
	"net/netip"
	"time"

	"github.com/jeoul/jeoul/internal/balancer/lb"
	"github.com/jeoul/jeoul/internal/balancer/ops"
	"github.com/jeoul/jeoul/internal/text/keytable"
)

// MaxServices is how many services a configuration can have, and MaxBackends how
// many backends one of them: a slot of a table names a backend by 15 bits.
const (
	MaxServices = 65536
	MaxBackends = 32767
)

// The bounds of an MSS option: every IPv4 host takes segments of 536 bytes (RFC 9293 section 3.7.1), and the largest
// IPv4 packet has room for 65,495.
const (
	minMSS = 536
	maxMSS = 65495
)

// maxMetricsBackends bounds the backends with series of their own: beyond it, a scrape is
// hundreds of megabytes.
const maxMetricsBackends = 1_000_000

// maxClients bounds the networks that a service can allow, and those that it can deny.
const maxClients = 65_536

// maxUntranslated bounds the networks that a service can leave untranslated.
const maxUntranslated = 64

// clientNetworks is a list of networks of clients; absent is the documented default.
func clientNetworks(at func(*lb.Service) *[]netip.Prefix, absent string) keytable.Value[lb.Service] {
	return keytable.Items(at, network, "network",
		keytable.Length{Max: maxClients, Empty: "name a network, or remove the line",
			TooMany: "that a service can have; join neighbouring ones into a shorter prefix", Absent: absent})
}

// rootKeys are the keys of the file. This table and those below are where a key has its
// name, type, range, default and explanation.
var rootKeys = keytable.Table[Config]{
	{Name: "interface", Required: true, Unless: "interfaces",
		What: "The network interface that packets arrive on. It carries the VIPs. A reload can [change it](../guides/operations.md#change-the-interfaces).",
		Value: keytable.Computed(
			func(c *Config) (string, bool) { return c.Interfaces[0], len(c.Interfaces) == 1 },
			func(c *Config, name string) { c.Interfaces = []string{name} }, interfaceName, "", "")},
	{Name: "interfaces",
		What: "The network interfaces that packets arrive on, where there are several. The first carries the VIPs. Stands in place of `interface`. A reload can [change them](../guides/operations.md#change-the-interfaces).",
		Value: keytable.Several(func(c *Config) *[]string { return &c.Interfaces }, interfaceName, "interface",
			keytable.Length{Max: lb.MaxInterfaces, Empty: "name at least one interface",
				TooMany: "that a balancer can have; split the services between two"})},
	{Name: "hook",
		What:  "Where in the kernel packets are taken. `auto` takes XDP where the driver runs it natively and nothing speaks against it, and TC otherwise. In XDP it joins [libxdp's dispatcher](../guides/neighbours.md) where an interface has that.",
		Value: keytable.Field(func(c *Config) *lb.Hook { return &c.Hook }, keytable.Word(lb.Hooks...), lb.HookAuto)},
	{Name: "socket",
		What:  "The unix socket on which the daemon answers `jeoul status` and the other commands.",
		Value: keytable.Field(func(c *Config) *string { return &c.Socket }, socketPath, DefaultSocket)},
	{Name: "metrics",
		What:  "What Prometheus can scrape: [metrics](../guides/metrics.md).",
		Value: keytable.Mapping(func(c *Config) *Metrics { return &c.Metrics }, metricsKeys)},
	{Name: "api",
		What:    "How the API is answered over TCP as well: [over TCP](../guides/api.md#over-tcp).",
		Refused: "Neither `tokens` nor `client_ca`.",
		Value:   keytable.Mapping(func(c *Config) *API { return &c.API }, apiKeys)},
	{Name: "survive",
		What: "Whether the data plane outlives the daemon's process, for the next one to go on with: `auto` where there is a bpf file system, `always` or the start fails, `never`.",
		Value: keytable.Field(func(c *Config) *Survive {
			return &c.Survive
		}, keytable.Word(SurviveAuto, SurviveAlways, SurviveNever), SurviveAuto)},
	{Name: "orphan",
		What: "How long a data plane that has outlived its process forwards until another process takes it over. After that, packets for the VIPs are left to the kernel until one does.",
		Value: keytable.Field(func(c *Config) *time.Duration {
			return &c.Orphan
		}, keytable.OrNever(keytable.Duration(minOrphan, maxEstablishedTimeout)), DefaultOrphan)},
	{Name: "table_size",
		What: "Slots of the hash table of each service that does not have its own `table_size`.",
		Value: keytable.Optional(func(c *Config) *uint32 { return &c.TableSize }, tableSize,
			"by the number of backends: 1021, 8191, 65537 or 1048573")},
	{Name: "flows",
		What:  "Bounds of the tables of flows.",
		Value: keytable.Mapping(func(c *Config) *Flows { return &c.Flows }, flowKeys)},
	{Name: "transition",
		What:  "How long, after the last change of a service's backends, flows that are not remembered go where they went before.",
		Value: keytable.Mapping(func(c *Config) *Transition { return &c.Transition }, transitionKeys)},
	{Name: "fullnat",
		What:    "The addresses and ports that mode `fullnat` sends from.",
		Refused: "A service of mode `fullnat` without an address of its VIP's family.",
		Value:   keytable.Mapping(func(c *Config) *FullNAT { return &c.FullNAT }, fullNATKeys)},
	{Name: "local",
		What:    "Whether clients on the balancer's own host are served: their sockets get a backend when they connect or send. See [clients on the host itself](../guides/local.md).",
		Refused: "A backend of another family than its service's VIP.",
		Value: keytable.Switch(func(c *Config) *Local { return &c.Local }, func(l *Local) *bool {
			return &l.On
		}, localKeys)},
	{Name: "proxy",
		What:  "The proxy engine, HAProxy, which all services of mode `proxy` share: [the proxy](../guides/proxy.md#the-engine).",
		Value: keytable.Mapping(func(c *Config) *lb.ProxyEngine { return &c.Proxy }, engineKeys)},
	{Name: "bgp",
		What: "The routers to which VIPs are announced, by BGP: [several balancers](../guides/bgp.md).",
		Value: keytable.Where(func(c *Config) bool { return c.BGP.On() }, keytable.Mapping(func(c *Config) *lb.BGP {
			return &c.BGP
		}, bgpKeys))},
	{Name: "vrrp",
		What: "The balancers of the segment that share the VIPs, one of which holds them: [a shared address](../guides/vrrp.md).",
		Value: keytable.Where(func(c *Config) bool {
			return c.VRRP.ID != 0
		}, keytable.Mapping(func(c *Config) *lb.VRRP { return &c.VRRP }, vrrpKeys))},
	{Name: "members",
		What: "The other balancers that share the VIPs, and are compared with: [members](../guides/members.md).",
		Value: keytable.Where(func(c *Config) bool { return c.Members.Listen.IsValid() },
			keytable.Mapping(func(c *Config) *lb.MembersConfig { return &c.Members }, membersKeys))},
	{Name: "services", Required: true,
		What:    "The services; `[]` where [other sources](../guides/api.md#who-has-a-service) have all of them.",
		Refused: "Two services with the same VIP, port and protocol, or the same name.",
		Value: keytable.OrEmpty(func(*Config) bool { return true },
			keytable.Mappings(func(c *Config) *[]lb.Service { return &c.Services }, serviceKeys,
				keytable.Length{Max: MaxServices, TooMany: "that a balancer can hold; split them between two"}))},
}

var metricsKeys = keytable.Table[Metrics]{
	{Name: "listen",
		What: "Where scrapes are answered over TCP, under `/metrics`. They bear no credentials: choose an address that only the management network reaches.",
		Value: keytable.Optional(func(m *Metrics) *netip.AddrPort { return &m.Listen }, listenAddress,
			"on the unix socket only")},
	{Name: "backends",
		What: "Up to how many backends, of all services, each has series of its own.",
		Value: keytable.Field(func(m *Metrics) *uint32 {
			return &m.Backends
		}, keytable.Number[uint32](0, maxMetricsBackends), DefaultMetricsBackends)},
}

var apiKeys = keytable.Table[API]{
	{Name: "listen", Required: true,
		What:  "Where the API is answered over TCP, with TLS and credentials only.",
		Value: keytable.Optional(func(a *API) *netip.AddrPort { return &a.Listen }, listenAddress, "")},
	{Name: "certificate", Required: true,
		What:  "The file of the server's certificate, and of those between it and its authority (PEM). It is read again when it changes.",
		Value: keytable.Optional(func(a *API) *string { return &a.Certificate }, absolutePath, "")},
	{Name: "key", Required: true,
		What:    "The file of the certificate's private key (PEM).",
		Refused: "A file that others than its owner and group can read.",
		Value:   keytable.Optional(func(a *API) *string { return &a.Key }, absolutePath, "")},
	{Name: "tokens",
		What:    "The file of [tokens](../guides/api.md#tokens): names, roles and hashes. It is read again when it changes.",
		Refused: "A file that others than its owner and group can read.",
		Value:   keytable.Optional(func(a *API) *string { return &a.Tokens }, absolutePath, "no token is accepted")},
	{Name: "client_ca",
		What:    "The file of the authorities that vouch for client certificates (PEM). It is read again when it changes.",
		Refused: "No `clients` beside it.",
		Value: keytable.Optional(func(a *API) *string { return &a.ClientCA }, absolutePath,
			"no client certificate is accepted")},
	{Name: "clients",
		What:    "What clients with a certificate may do; the first subject that fits counts.",
		Refused: "No `client_ca` beside it.",
		Value: keytable.Mappings(func(a *API) *[]APIClient { return &a.Clients }, apiClientKeys,
			keytable.Length{Max: maxAPIClients, Empty: "name a subject, or remove the line",
				TooMany: "that there can be; give them an organizational unit", Absent: "none"})},
}

var localKeys = keytable.Table[Local]{
	{Name: "cgroup",
		What:    "The directory of the control group (cgroup v2) whose processes, and those of the groups below, are served.",
		Refused: "No directory of a cgroup v2 hierarchy.",
		Value: keytable.Optional(func(l *Local) *string { return &l.Cgroup }, absolutePath,
			"the root of the hierarchy, which all processes are in")},
}

var apiClientKeys = keytable.Table[APIClient]{
	{Name: "subject", Required: true, What: "The certificate's common name or one of its organizational units.",
		Value: keytable.Optional(func(c *APIClient) *Subject { return &c.Subject }, subject, "")},
	{Name: "role", Required: true, What: "The client's role: [roles](../guides/api.md#roles).",
		Value: keytable.Optional(func(c *APIClient) *ops.Role { return &c.Role }, keytable.Word(ops.Roles...), "")},
}

var flowKeys = keytable.Table[Flows]{
	{Name: "limit",
		What: "Proven flows that are remembered at a time, of all services: those whose client has shown that it is at its address.",
		Value: keytable.Optional(func(f *Flows) *uint32 {
			return &f.Limit
		}, keytable.Number[uint32](minFlowLimit, maxFlowLimit),
			fmt.Sprintf("`%d` where a service remembers every flow, less elsewhere", lb.DefaultFlowLimit))},
	{Name: "unproven",
		What: "Other flows that are remembered at a time, in a table of their own.",
		Value: keytable.Computed(func(f *Flows) (uint32, bool) { return f.Unproven, f.Unproven != f.defaultUnproven() },
			func(f *Flows, n uint32) { f.Unproven = n }, keytable.Number[uint32](minFlowLimit, maxFlowLimit), 0,
			fmt.Sprintf("`%d`, or `limit` where that is less", lb.DefaultUnprovenLimit))},
	{Name: "timeouts",
		What:  "How long a flow is remembered after its last packet from the client, by its state.",
		Value: keytable.Mapping(func(f *Flows) *lb.Timeouts { return &f.Timeouts }, timeoutKeys)},
}

var timeoutKeys = keytable.Table[lb.Timeouts]{
	{Name: "opening", What: "TCP: the client's SYN was seen, and nothing after it.",
		Value: keytable.Field(func(t *lb.Timeouts) *time.Duration {
			return &t.Opening
		}, keytable.Duration(minFlowTimeout, maxOpeningTimeout), lb.DefaultTimeouts.Opening)},
	{Name: "first", What: "UDP: one packet was seen.",
		Value: keytable.Field(func(t *lb.Timeouts) *time.Duration {
			return &t.First
		}, keytable.Duration(minFlowTimeout, maxOpeningTimeout), lb.DefaultTimeouts.First)},
	{Name: "established", What: "TCP: neither end has closed.",
		Value: keytable.Field(func(t *lb.Timeouts) *time.Duration {
			return &t.Established
		}, keytable.Duration(minFlowTimeout, maxEstablishedTimeout), lb.DefaultTimeouts.Established)},
	{Name: "udp", What: "UDP: more than one packet was seen.",
		Value: keytable.Field(func(t *lb.Timeouts) *time.Duration {
			return &t.UDP
		}, keytable.Duration(minFlowTimeout, maxUDPTimeout), lb.DefaultTimeouts.UDP)},
	{Name: "fin", What: "TCP: one end has closed.",
		Value: keytable.Field(func(t *lb.Timeouts) *time.Duration {
			return &t.Fin
		}, keytable.Duration(minFlowTimeout, maxClosingTimeout), lb.DefaultTimeouts.Fin)},
	{Name: "closed", What: "TCP: both ends have closed, or one has reset the connection.",
		Value: keytable.Field(func(t *lb.Timeouts) *time.Duration {
			return &t.Closed
		}, keytable.Duration(minFlowTimeout, maxClosingTimeout), lb.DefaultTimeouts.Closed)},
}

var transitionKeys = keytable.Table[Transition]{
	{Name: "tcp", What: "For TCP services.",
		Value: keytable.Field(func(t *Transition) *time.Duration {
			return &t.TCP
		}, keytable.Duration(minFlowTimeout, maxWindow), lb.DefaultTCPWindow)},
	{Name: "udp", What: "For UDP services.",
		Value: keytable.Field(func(t *Transition) *time.Duration {
			return &t.UDP
		}, keytable.Duration(minFlowTimeout, maxWindow), lb.DefaultUDPWindow)},
}

var serviceKeys = keytable.Table[lb.Service]{
	{Name: "name", Required: true, What: "Names the service in commands, logs and counters.",
		Value: keytable.Optional(func(s *lb.Service) *string { return &s.Name }, label, "")},
	{Name: "vip", Required: true, What: "The address that clients send to.",
		Value: keytable.Optional(func(s *lb.Service) *netip.Addr { return &s.VIP }, hostAddress, "")},
	{Name: "port", Required: true, What: "The port that clients send to.",
		Value: keytable.Optional(func(s *lb.Service) *uint16 {
			return &s.Port
		}, keytable.Number[uint16](1, 65535), "")},
	{Name: "protocol", What: "The transport protocol.",
		Value: keytable.Field(func(s *lb.Service) *lb.Protocol {
			return &s.Protocol
		}, keytable.Word(lb.TCP, lb.UDP), lb.TCP)},
	{Name: "mode", What: "How packets reach the backends: [modes](../guides/modes.md).",
		Value: keytable.Field(func(s *lb.Service) *lb.Mode { return &s.Mode }, keytable.Word(lb.Modes...), lb.L2DSR)},
	{Name: "dscp", What: "The DSCP value that stands for the VIP in mode `dscp`. All services of a VIP have the same.",
		Refused: "Another mode than `dscp`, and a value that stands for another VIP.",
		Value: keytable.Optional(func(s *lb.Service) *uint8 { return &s.DSCP }, keytable.Number[uint8](1, maxDSCP),
			"the first value that is free")},
	{Name: "mss", What: "The most that the MSS option of a SYN may say, in bytes; larger ones are lowered.",
		Refused: "Another protocol than `tcp`, and the mode `proxy`.",
		Value: keytable.Optional(func(s *lb.Service) *uint16 {
			return &s.MSS
		}, keytable.Number[uint16](minMSS, maxMSS), "SYNs stay as they are")},
	{Name: "untranslated",
		What:    "Networks whose hosts are no clients of the service: packets to them from the backends' ports stay as they are.",
		Refused: "Another mode than `nat`, and another family than the VIP's.",
		Value: keytable.Items(func(s *lb.Service) *[]netip.Prefix { return &s.Untranslated }, network, "network",
			keytable.Length{Max: maxUntranslated, Empty: "name a network, or remove the line",
				TooMany: "that a service can have; join neighbouring ones into a shorter prefix", Absent: "none"})},
	{Name: "hairpin",
		What:    "Clients whose backends would answer them directly, since they are on one link, are served through full NAT: [hairpin](../guides/modes.md#hairpin). `false` is for backends that are set up to answer them through the balancer.",
		Refused: "Another mode than `nat`.",
		Value: keytable.Computed(func(s *lb.Service) (bool, bool) { return !s.NoHairpin, s.NoHairpin },
			func(s *lb.Service, on bool) { s.NoHairpin = !on }, keytable.Bool, true, "`true`")},
	{Name: "allow",
		What:    "Networks whose hosts the service serves, and no others: [limits](../guides/limits.md#serve-some-clients-only).",
		Refused: "Another family than the VIP's, and a network that is denied too.",
		Value:   clientNetworks(func(s *lb.Service) *[]netip.Prefix { return &s.Allow }, "all clients")},
	{Name: "deny",
		What:    "Networks whose hosts the service does not serve: their packets are dropped. Of two networks that a client is in, allowed or denied, the smaller one counts.",
		Refused: "Another family than the VIP's, and a network that is allowed too.",
		Value:   clientNetworks(func(s *lb.Service) *[]netip.Prefix { return &s.Deny }, "none")},
	{Name: "scheduler", What: "The rule by which a new flow gets its backend: [schedulers](../guides/schedulers.md).",
		Refused: "`maglev` in the mode `proxy`.",
		Value: keytable.Computed(func(s *lb.Service) (lb.Scheduler, bool) {
			return s.Scheduler, s.Scheduler != defaultScheduler("")
		},
			func(s *lb.Service, to lb.Scheduler) { s.Scheduler = to }, keytable.Word(lb.Schedulers...),
			defaultScheduler(""),
			fmt.Sprintf("`%s`; `%s` in the mode `proxy`", defaultScheduler(""), defaultScheduler(lb.ModeProxy)))},
	{Name: "hash",
		What:    "What `maglev` hashes: the client's address and port (`flow`), or its address alone (`source`).",
		Refused: "Another scheduler than `maglev`.",
		Value: keytable.Optional(func(s *lb.Service) *lb.Hash {
			return &s.Hash
		}, keytable.Word(lb.HashFlow, lb.HashSource), fmt.Sprintf("`%s`", lb.HashFlow))},
	{Name: "table_size", What: "Slots of the service's hash table.",
		Refused: "Fewer slots than backends, and the mode `proxy`, which has none.",
		Value: keytable.Optional(func(s *lb.Service) *uint32 { return &s.TableSize }, tableSize,
			"as the file's `table_size`")},
	{Name: "persistence", What: "Sends all flows of a client to the backend of its first one.",
		Value: keytable.Mapping(func(s *lb.Service) *lb.Persistence { return &s.Persistence }, persistenceKeys)},
	{Name: "limits", What: "Bounds of the service's packets and connections: [limits](../guides/limits.md).",
		Value: keytable.Mapping(func(s *lb.Service) *lb.Limits { return &s.Limits }, limitKeys)},
	{Name: "check",
		What:    "How the service finds which of its backends serve; a backend that fails takes no new flows: [health checks](../guides/health.md).",
		Refused: "`checks` beside it.",
		Value:   keytable.Short(checksOf, checkKeys, "type", "checks")},
	{Name: "checks", What: "Several checks of each backend.",
		Value: keytable.Shorts(checksOf, checkKeys, "type",
			keytable.Length{Max: maxChecks, Empty: "name a check, or remove the line",
				TooMany: "that a service can have; let one program ask several things (`exec`)", Absent: "none"})},
	{Name: "require", What: "Whether `all` of several checks must pass, or `any` one.",
		Refused: "Fewer than two checks.",
		Value: keytable.Computed(func(s *lb.Service) (string, bool) { return requireAny, s.Checks.Any },
			func(s *lb.Service, word string) { s.Checks.Any = word == requireAny }, oneOf(requireAll, requireAny),
			"", "`all`")},
	{Name: "panic", What: "Below which share of healthy backends all are used, failing ones too; `0%`: never.",
		Refused: "No check and no `outliers`; more than 0% beside `on_empty: withdraw`.",
		Value: keytable.Computed(func(s *lb.Service) (uint8, bool) {
			return s.Checks.Panic, s.IsMonitored() && s.Checks.Panic != lb.DefaultPanicFor(s.OnEmpty)
		},
			func(s *lb.Service, n uint8) { s.Checks.Panic = n }, percent(100), 0,
			fmt.Sprintf("`%d%%`: with up to 100 backends, when none is healthy; `%d%%` beside `on_empty: withdraw`",
				lb.DefaultPanic, lb.DefaultPanicFor(lb.WithdrawVIP)))},
	{Name: "on_down",
		What:    "The policy for flows of a backend whose checks fail: they stay (`keep`), they end (`reset`), or other backends get them (`move`): [flows of a failing backend](../guides/health.md#flows-of-a-failing-backend).",
		Refused: "No check, or for `udp` no `outliers` either; `move` where the protocol is `tcp`, for another backend does not know the connection, and `reset` where it is `udp`, which has none.",
		Value: keytable.Computed(func(s *lb.Service) (lb.OnDown, bool) {
			does := cmp.Or(s.Checks.OnDown, lb.KeepFlows)
			return does, s.IsMonitored() && does != lb.DefaultOnDown(s.Protocol)
		},
			func(s *lb.Service, d lb.OnDown) {
				s.Checks.OnDown = d
			}, keytable.Word(lb.KeepFlows, lb.ResetFlows, lb.MoveFlows), "",
			fmt.Sprintf("`%s`; where the protocol is `udp`, `%s`", lb.KeepFlows, lb.MoveFlows))},
	{Name: "outliers",
		What:    "Ejects backends that fail most of the new flows that clients send them, for a while: [outliers](../guides/health.md#outliers).",
		Refused: "Another mode than `nat` and `fullnat`: in the others, answers do not come back through the balancer.",
		Value: keytable.Where(func(s *lb.Service) bool { return s.Outliers.On() },
			keytable.Mapping(func(s *lb.Service) *lb.Outliers { return &s.Outliers }, outlierKeys))},
	{Name: "slow_start",
		What:    "How long the share of new flows of a backend that begins to serve grows to its weight: [slow start](../guides/health.md#slow-start).",
		Refused: "The schedulers `rr`, `lc` and `fo`, which heed no weights.",
		Value: keytable.Optional(func(s *lb.Service) *time.Duration {
			return &s.SlowStart
		}, keytable.Duration(minSlowStart, maxSlowStart), "the whole share at once")},
	{Name: "on_empty",
		What: "The policy for the VIP while no backend serves: it stays, and packets are refused (`keep`), or it is taken off the interface (`withdraw`), where all services of the VIP say so: [when no backend serves](../guides/health.md#when-no-backend-serves).",
		Value: keytable.Computed(func(s *lb.Service) (lb.OnEmpty, bool) {
			does := cmp.Or(s.OnEmpty, lb.KeepVIP)
			return does, does != lb.KeepVIP
		},
			func(s *lb.Service, e lb.OnEmpty) { s.OnEmpty = e }, keytable.Word(lb.KeepVIP, lb.WithdrawVIP), "",
			fmt.Sprintf("`%s`", lb.KeepVIP))},
	{Name: "proxy",
		What:    "What a service of mode `proxy` does with connections and requests: [the proxy](../guides/proxy.md).",
		Refused: "Another mode than `proxy`.",
		Value:   keytable.Part(func(s *lb.Service) **lb.Proxy { return &s.Proxy }, proxyKeys)},
	{Name: "announce",
		What: "Whether the service counts for its VIP, where [`bgp`](../guides/bgp.md) announces VIPs: one is announced while a service of it serves that counts.",
		Value: keytable.Computed(func(s *lb.Service) (bool, bool) {
			return !s.Announcement.Never, s.Announcement.Never
		},
			func(s *lb.Service, on bool) { s.Announcement.Never = !on }, keytable.Bool, true, "`true`")},
	{Name: "announce_minimum", What: "How many backends must serve for the service to count.",
		Refused: "More than the service has backends, where it has neither `discover` nor `allow_empty`.",
		Value: keytable.Optional(func(s *lb.Service) *uint16 { return &s.Announcement.Minimum },
			keytable.Number[uint16](1, MaxBackends), "1")},
	{Name: "discover",
		What: "Where further backends are found: in a file that another program writes, in the DNS, among containers: [discovery](../guides/discovery.md).",
		Value: keytable.Where(func(s *lb.Service) bool { return s.Discovery.On() },
			keytable.Mapping(func(s *lb.Service) *lb.Discovery { return &s.Discovery }, discoveryKeys))},
	{Name: "allow_empty",
		What: "Whether the service may have no backend that takes new flows, as when a program that configures it finds none: " +
			"[when no backend serves](../guides/health.md#when-no-backend-serves). `backends` is `[]` where it has none at all.",
		Value: keytable.Field(func(s *lb.Service) *bool { return &s.AllowEmpty }, keytable.Bool, false)},
	{Name: "backends", Required: true, Unless: "discover", Beside: true,
		What:    "The real servers. A service that has `discover` needs none here.",
		Refused: "Backends that are all drained or of weight 0, unless `allow_empty` is `true`; two with the same address (in the modes `nat`, `fullnat` and `proxy`: address and port), or the same name; one of another family than the VIP, but in the modes `ipip`, `gue` and `proxy`.",
		Value: keytable.OrEmpty(func(s *lb.Service) bool { return s.AllowEmpty },
			keytable.Mappings(func(s *lb.Service) *[]lb.Backend { return &s.Backends }, backendKeys,
				keytable.Length{Max: MaxBackends,
					TooMany: "that a service can have; split them between two services"}))},
}

// persistenceKeys are the keys of a service's persistence.
var persistenceKeys = keytable.Table[lb.Persistence]{
	{Name: "timeout", Required: true, What: "How long a client is remembered after its last flow began.",
		Value: keytable.Optional(func(p *lb.Persistence) *time.Duration {
			return &p.Timeout
		}, keytable.Duration(minFlowTimeout, maxPersistence), "")},
	{Name: "prefix", What: "Leading bits of the address that tell clients apart.",
		Refused: "More bits than an address of the VIP's family has.",
		Value: keytable.Optional(func(p *lb.Persistence) *uint8 { return &p.Prefix }, keytable.Number[uint8](1, 128),
			"all bits: `32`, or `128` for IPv6")},
	{Name: "group",
		What:    "Names a group of services that remember their clients together: a client of one goes to the same host, known by its address, in all of them.",
		Refused: "Another timeout, prefix or family than the rest of the group has, and two backends of one address.",
		Value: keytable.Optional(func(p *lb.Persistence) *string { return &p.Group }, label,
			"the service remembers its clients alone")},
}

var outlierKeys = keytable.Table[lb.Outliers]{
	{Name: "failures", Required: true,
		What:  "The share of failures in an interval that ejects a backend: of TCP, new connections that it does not answer by SYN and ACK; of UDP, ICMP errors among the packets that come back.",
		Value: keytable.Optional(func(o *lb.Outliers) *uint8 { return &o.Failures }, share(1, 100), "")},
	{Name: "connections",
		What: "How many new connections a backend must have got in an interval, of UDP how many datagrams, to be judged by it.",
		Value: optionalOutlier(func(o *lb.Outliers) *uint32 {
			return &o.Connections
		}, keytable.Number[uint32](1, maxConnections), lb.DefaultOutlierConnections)},
	{Name: "interval", What: "Over how long the share is taken.",
		Value: optionalOutlier(func(o *lb.Outliers) *time.Duration {
			return &o.Interval
		}, keytable.Duration(minFlowTimeout, maxOutlierInterval), lb.DefaultOutlierInterval)},
	{Name: "pause",
		What: "How long a backend is ejected. It doubles each time, and halves with each interval that the backend has served well since.",
		Value: optionalOutlier(func(o *lb.Outliers) *time.Duration {
			return &o.Pause
		}, keytable.Duration(minFlowTimeout, maxOutlierPause), lb.DefaultOutlierPause)},
	{Name: "longest_pause", What: "The pause does not grow beyond this.",
		Refused: "Less than `pause`.",
		Value: keytable.Computed(func(o *lb.Outliers) (time.Duration, bool) {
			return o.LongestPause, o.LongestPause != defaultMaxPause(*o)
		},
			func(o *lb.Outliers, d time.Duration) {
				o.LongestPause = d
			}, keytable.Duration(minFlowTimeout, maxOutlierPause), 0,
			fmt.Sprintf("`%s`, or `pause` where that is more", keytable.ShowDuration(lb.DefaultOutlierLongestPause)))},
	{Name: "ejected",
		What: "Which share of a service's backends may be ejected at a time. One may be in any case, and the last that serves never.",
		Value: optionalOutlier(func(o *lb.Outliers) *uint8 { return &o.Ejected }, share(1, 100),
			lb.DefaultOutlierEjected)},
}

var limitKeys = keytable.Table[lb.Limits]{
	{Name: "rate", What: "New flows a second.",
		Value: keytable.Optional(func(l *lb.Limits) *uint32 { return &l.Rate }, keytable.Bound[uint32](maxRate),
			"no bound")},
	{Name: "burst", What: "New flows that may come at once beyond those that `rate` has due.",
		Refused: "No `rate` beside it.",
		Value: keytable.Computed(func(l *lb.Limits) (uint32, bool) { return l.Burst, l.Burst != defaultBurst(l.Rate) },
			func(l *lb.Limits, n uint32) { l.Burst = n }, keytable.Number[uint32](0, maxRate), 0, "a tenth of `rate`")},
	{Name: "connections", What: "Flows that have not ended, half-open ones included.",
		Value: keytable.Optional(func(l *lb.Limits) *uint32 {
			return &l.Connections
		}, keytable.Bound[uint32](maxConnections), "no bound")},
	{Name: "refuse",
		What: "The treatment of packets that a limit refuses, or that cannot be sent on for want of a backend, a flow, a port or room: dropped, or answered (TCP by a reset, UDP by ICMP port unreachable).",
		Value: keytable.Optional(func(l *lb.Limits) *lb.Refusal {
			return &l.Refuse
		}, keytable.Word(lb.RefuseByDrop, lb.RefuseByReset), fmt.Sprintf("`%s`", lb.RefuseByDrop))},
}

// proxyKeys are the keys of `proxy` of a service.
var proxyKeys = keytable.Table[lb.Proxy]{
	{Name: "speaks",
		What: "The application protocol that the proxy parses: none (`tcp`) or HTTP (`http`: HTTP/1.1, and HTTP/2 over TLS).",
		Value: keytable.Optional(func(p *lb.Proxy) *lb.Speaks {
			return &p.Speaks
		}, keytable.Word(lb.SpeaksTCP, lb.SpeaksHTTP), fmt.Sprintf("`%s`", lb.SpeaksTCP))},
	{Name: "certificates",
		What:    "Files (PEM), each with a certificate, those between it and its authority, and its key. With them, clients are spoken to by TLS; which one a client gets goes by SNI, the first where none fits. They are taken again when they change.",
		Refused: "A file that cannot be read, one whose key is another certificate's, and one that has expired unless it is served already.",
		Value: keytable.Items(func(p *lb.Proxy) *[]string { return &p.Certificates }, absolutePath, "file",
			keytable.Length{Max: maxCertificates, Empty: "name a file, or remove the line",
				TooMany: "that a service can have", Absent: "without TLS"})},
	{Name: "http2", What: "Whether HTTP/2 is offered to clients over TLS.",
		Refused: "No `certificates` beside it.",
		Value:   enabledUnless(func(p *lb.Proxy) *bool { return &p.NoHTTP2 })},
	{Name: "routes",
		What:    "Sends requests to some of the backends, by host and path. They are tried in order; a request that none fits goes to all backends of the service.",
		Refused: "A route, or a host and path of one, that those before it leave no request for.",
		Value: keytable.Mappings(func(p *lb.Proxy) *[]lb.Route { return &p.Routes }, routeKeys,
			keytable.Length{Max: maxRoutes, Empty: "name a route, or remove the line",
				TooMany: "that a service can have", Absent: "none"})},
	{Name: "forwarded_for",
		What:  "Whether requests are given `X-Forwarded-For` with the client's address and `X-Forwarded-Proto`; without, what clients sent of them is passed on.",
		Value: enabledUnless(func(p *lb.Proxy) *bool { return &p.NoForwardedFor })},
	{Name: "send_proxy",
		What: "The version of the PROXY protocol header that connections to backends begin with, which has the client's address.",
		Value: keytable.Optional(func(p *lb.Proxy) *uint8 { return &p.SendProxy }, keytable.Number[uint8](1, 2),
			"no header")},
	{Name: "accept_proxy",
		What:  "Whether clients' connections begin with a PROXY protocol header, which is then what says whose they are.",
		Value: keytable.Field(func(p *lb.Proxy) *bool { return &p.AcceptProxy }, keytable.Bool, false)},
	{Name: "backend_tls",
		What: "Encrypts connections to backends, which must have a certificate that an authority vouches for (`verify`), or any (`no-verify`).",
		Value: keytable.Optional(func(p *lb.Proxy) *lb.BackendTLS {
			return &p.BackendTLS
		}, keytable.Word(lb.BackendTLSVerified, lb.BackendTLSUnverified), "not encrypted")},
	{Name: "backend_ca", What: "A file of the authorities that vouch for backends (PEM).",
		Refused: "No `backend_tls: verify` beside it.",
		Value:   keytable.Optional(func(p *lb.Proxy) *string { return &p.BackendCA }, absolutePath, "the host's")},
	{Name: "security_headers",
		What:  "Whether responses bear `Strict-Transport-Security` (over TLS), `X-Content-Type-Options`, `X-Frame-Options` and `Referrer-Policy`, unless backends set their own.",
		Value: keytable.Field(func(p *lb.Proxy) *bool { return &p.SecurityHeaders }, keytable.Bool, false)},
	{Name: "request_headers",
		What:  "Header fields that are set in requests, as `\"NAME: VALUE\"`; without a value the field is removed.",
		Value: proxyHeaders(func(p *lb.Proxy) *[]lb.Header { return &p.RequestHeaders })},
	{Name: "response_headers", What: "Likewise in responses.",
		Value: proxyHeaders(func(p *lb.Proxy) *[]lb.Header { return &p.ResponseHeaders })},
	{Name: "redirect_tls", What: "Whether requests are answered by a redirect to the same address over HTTPS.",
		Refused: "`certificates` beside it: the service is HTTPS then.",
		Value:   keytable.Field(func(p *lb.Proxy) *bool { return &p.RedirectTLS }, keytable.Bool, false)},
	{Name: "cookie", What: "The name of a cookie that keeps a client at its backend.",
		Value: keytable.Optional(func(p *lb.Proxy) *string { return &p.Cookie }, cookieName, "none")},
	{Name: "retries",
		What:  "How many further tries a connection to a backend gets, the last of them to another backend.",
		Value: optionalRetries},
	{Name: "timeouts", What: "How long a side of a connection may take.",
		Value: keytable.Mapping(func(p *lb.Proxy) *lb.ProxyTimeouts { return &p.Timeouts }, proxyTimeoutKeys)},
	{Name: "frontend",
		What:    "Lines of HAProxy's configuration for what has no key, put behind those of the section of the service's clients.",
		Refused: "What HAProxy refuses.",
		Value:   keytable.Optional(func(p *lb.Proxy) *string { return &p.Frontend }, snippet, "none")},
	{Name: "backend", What: "Likewise for the sections of its backends.",
		Refused: "What HAProxy refuses.",
		Value:   keytable.Optional(func(p *lb.Proxy) *string { return &p.Back }, snippet, "none")},
}

// proxyHeaders is a list of header fields.
func proxyHeaders(at func(*lb.Proxy) *[]lb.Header) keytable.Value[lb.Proxy] {
	return keytable.Sequence(at, proxyHeader,
		keytable.Length{Max: maxHeaders, Empty: "name a field, or remove the line", TooMany: "that can be set",
			Absent: "none"})
}

var routeKeys = keytable.Table[lb.Route]{
	{Name: "hosts", What: "The hosts of requests, without port; `*.example.com` is all below `example.com`.",
		Value: keytable.Items(func(r *lb.Route) *[]string { return &r.Hosts }, routeHost, "host",
			keytable.Length{Max: maxRouteNames, Empty: "name a host, or remove the line",
				TooMany: "that a route can have", Absent: "any"})},
	{Name: "paths", What: "Beginnings of the path, up to a slash: `/api` is `/api` and all below it, and not `/apis`.",
		Value: keytable.Items(func(r *lb.Route) *[]string { return &r.Paths }, routePath, "path",
			keytable.Length{Max: maxRouteNames, Empty: "name a path, or remove the line",
				TooMany: "that a route can have", Absent: "any"})},
	{Name: "backends", Required: true, What: "The names of those of the service's backends that get the requests.",
		Refused: "A name that no backend of the service has.",
		Value: keytable.Items(func(r *lb.Route) *[]string { return &r.Backends }, label, "backend",
			keytable.Length{Max: MaxBackends, Empty: "name a backend", TooMany: "that a route can have"})},
}

var proxyTimeoutKeys = keytable.Table[lb.ProxyTimeouts]{
	{Name: "connect", What: "Until a backend has accepted a connection.",
		Value: proxyTimeout(func(t *lb.ProxyTimeouts) *time.Duration { return &t.Connect }, enginesDefault)},
	{Name: "client", What: "Silence of a client.",
		Value: proxyTimeout(func(t *lb.ProxyTimeouts) *time.Duration { return &t.Client }, enginesDefault)},
	{Name: "server", What: "Silence of a backend.",
		Value: proxyTimeout(func(t *lb.ProxyTimeouts) *time.Duration { return &t.Server }, enginesDefault)},
	{Name: "request", What: "Until a client has sent the head of a request.",
		Value: proxyTimeout(func(t *lb.ProxyTimeouts) *time.Duration { return &t.Request }, enginesDefault)},
	{Name: "keep_alive", What: "Until a client's next request.",
		Value: proxyTimeout(func(t *lb.ProxyTimeouts) *time.Duration { return &t.KeepAlive }, enginesDefault)},
	{Name: "tunnel", What: "Silence of upgraded connections, such as WebSocket.",
		Value: proxyTimeout(func(t *lb.ProxyTimeouts) *time.Duration { return &t.Tunnel }, enginesDefault)},
	{Name: "queue", What: "How long a request waits for a backend that is full.",
		Value: proxyTimeout(func(t *lb.ProxyTimeouts) *time.Duration { return &t.Queue }, enginesDefault)},
}

const enginesDefault = "the engine's default"

var engineKeys = keytable.Table[lb.ProxyEngine]{
	{Name: "threads", What: "How many threads the engine has.",
		Value: keytable.Optional(func(e *lb.ProxyEngine) *uint16 {
			return &e.Threads
		}, keytable.Number[uint16](1, maxThreads), "one for each CPU that it may use")},
	{Name: "cpu_map",
		What: "Which CPUs its threads run on, as lines of HAProxy's `cpu-map` without that word, such as `auto:1/1-4 0-3`.",
		Value: keytable.Items(func(e *lb.ProxyEngine) *[]string { return &e.CPUMap }, plainText(maxArgument), "line",
			keytable.Length{Max: maxCPUMaps, Empty: "name a line, or remove the key", TooMany: "that there can be",
				Absent: "any"})},
	{Name: "connections", What: "The most connections of clients of all services.",
		Value: keytable.Optional(func(e *lb.ProxyEngine) *uint32 {
			return &e.Connections
		}, keytable.Bound[uint32](maxConnections), "as many as open files allow")},
	{Name: "hard_stop", What: "How long a process that a reload has replaced keeps its connections.",
		Value: keytable.Optional(func(e *lb.ProxyEngine) *time.Duration {
			return &e.HardStop
		}, keytable.Duration(time.Second, maxProxyTimeout),
			fmt.Sprintf("`%s`", keytable.ShowDuration(lb.DefaultHardStop)))},
	{Name: "user", What: "The account that the engine runs as, where the daemon runs as root; otherwise it runs as the daemon's.",
		Value: keytable.Optional(func(e *lb.ProxyEngine) *string { return &e.User }, accountName,
			fmt.Sprintf("`%s`", lb.DefaultProxyUser))},
	{Name: "group", What: "The group that it runs as, where the daemon runs as root.",
		Value: keytable.Optional(func(e *lb.ProxyEngine) *string { return &e.Group }, accountName,
			fmt.Sprintf("`%s`", lb.DefaultProxyUser))},
	{Name: "program",
		What: "The path of HAProxy. Another one takes a stop and a start, since HAProxy goes on over a reload and a restart.",
		Value: keytable.Optional(func(e *lb.ProxyEngine) *string { return &e.Program }, absolutePath,
			"`haproxy`, by `PATH` and in `/usr/sbin`")},
	{Name: "global", What: "Lines of HAProxy's configuration for its section `global`.",
		Refused: "What HAProxy refuses.",
		Value:   keytable.Optional(func(e *lb.ProxyEngine) *string { return &e.Global }, snippet, "none")},
}

var discoveryKeys = keytable.Table[lb.Discovery]{
	{Name: "file",
		What: "A list of backends that another program writes. It is read again when it changes, and taken whole or not at all.",
		Value: keytable.Where(func(d *lb.Discovery) bool { return d.File.Path != "" },
			keytable.Mapping(func(d *lb.Discovery) *lb.FileOrigin { return &d.File }, fileOriginKeys))},
	{Name: "dns", What: "A name whose addresses are backends. It is asked for again when the answer's TTL has passed.",
		Value: keytable.Where(func(d *lb.Discovery) bool { return d.DNS.Name != "" },
			keytable.Mapping(func(d *lb.Discovery) *lb.DNSOrigin { return &d.DNS }, dnsOriginKeys))},
	{Name: "docker",
		What: "An engine of containers with Docker's API, such as Docker or Podman: backends are its containers with the label `jeoul.service=NAME` of this service's name: [labels](../guides/discovery.md#containers).",
		Value: keytable.Where(func(d *lb.Discovery) bool { return d.Docker.Socket != "" },
			keytable.Mapping(func(d *lb.Discovery) *lb.DockerOrigin { return &d.Docker }, dockerOriginKeys))},
}

var fileOriginKeys = append(keytable.Table[lb.FileOrigin]{
	{Name: "path", Required: true, What: "The file: [its form](../guides/discovery.md#a-file).",
		Value: keytable.Optional(func(f *lb.FileOrigin) *string { return &f.Path }, absolutePath, "")},
}, keepingKeys(func(f *lb.FileOrigin) *lb.OriginLimits { return &f.OriginLimits })...)

var dnsOriginKeys = append(keytable.Table[lb.DNSOrigin]{
	{Name: "name", Required: true,
		What:  "The name to query. A name that ends with a dot is queried literally; others also with the search domains of `/etc/resolv.conf`.",
		Value: keytable.Optional(func(d *lb.DNSOrigin) *string { return &d.Name }, domainName, "")},
	{Name: "type",
		What: "The records: addresses (`A`, `AAAA`, or `both`), or `SRV`, which have ports and weights. Where the type says no family, it is the VIP's, and in the modes `ipip` and `gue` either.",
		Value: unlessEmpty(func(d *lb.DNSOrigin) *string { return &d.Type }, oneOf("A", "AAAA", "both", "SRV"),
			lb.DefaultRecords)},
	{Name: "port", What: "The port that the backends listen on. SRV records say it themselves.",
		Refused: "The type `SRV`.",
		Value: keytable.Optional(func(d *lb.DNSOrigin) *uint16 { return &d.Port }, keytable.Number[uint16](1, 65535),
			"the service's `port`")},
	{Name: "servers", What: "The name servers that are asked, in this order.",
		Value: keytable.Items(func(d *lb.DNSOrigin) *[]netip.AddrPort { return &d.Servers }, nameServer, "server",
			keytable.Length{Max: maxNameServers, Empty: "name a server, or remove the line",
				TooMany: "that there can be", Absent: "those of `/etc/resolv.conf`"})},
	{Name: "hold",
		What: "How long a backend stays that the answers no longer have, for servers that answer with [a part of the records](../guides/discovery.md#servers-that-answer-with-a-part).",
		Value: keytable.Field(func(d *lb.DNSOrigin) *time.Duration { return &d.Hold },
			keytable.Duration(0, maxStale), 0)},
}, keepingKeys(func(d *lb.DNSOrigin) *lb.OriginLimits { return &d.OriginLimits })...)

var dockerOriginKeys = append(keytable.Table[lb.DockerOrigin]{
	{Name: "socket", Required: true,
		What:  "The engine's unix socket, such as `/var/run/docker.sock` or `/run/podman/podman.sock`.",
		Value: keytable.Optional(func(d *lb.DockerOrigin) *string { return &d.Socket }, socketPath, "")},
	{Name: "network", What: "The network of the containers whose addresses are taken.",
		Value: keytable.Optional(func(d *lb.DockerOrigin) *string { return &d.Network }, label,
			"the only one of each container")},
}, keepingKeys(func(d *lb.DockerOrigin) *lb.OriginLimits { return &d.OriginLimits })...)

// keepingKeys are the keys that bound the sets of an origin.
func keepingKeys[T any](at func(*T) *lb.OriginLimits) keytable.Table[T] {
	return keytable.Table[T]{
		{Name: "stale",
			What: "How long the last set is used after the origin has failed, or returns no backend. After that it is still used if the service would have no backend otherwise, unless the origin itself returns none.",
			Value: unlessEmpty(func(t *T) *time.Duration {
				return &at(t).Stale
			}, keytable.Duration(minFlowTimeout, maxStale), lb.DefaultStale)},
		{Name: "most", What: "How many backends are taken.",
			Value: unlessEmpty(func(t *T) *uint32 { return &at(t).Max }, keytable.Number[uint32](1, MaxBackends),
				lb.DefaultMaxFound)},
	}
}

var backendKeys = keytable.Table[lb.Backend]{
	{Name: "name", Required: true, What: "Names the backend in commands, logs and counters.",
		Value: keytable.Optional(func(b *lb.Backend) *string { return &b.Name }, label, "")},
	{Name: "address", Required: true, What: "The backend's own address.",
		Refused: "A VIP.",
		Value:   keytable.Optional(func(b *lb.Backend) *netip.Addr { return &b.Address }, hostAddress, "")},
	{Name: "port", What: "The port that the backend listens on.",
		Refused: "Another one than the service's, but in the modes `nat`, `fullnat` and `proxy`.",
		Value: keytable.Optional(func(b *lb.Backend) *uint16 { return &b.Port }, keytable.Number[uint16](1, 65535),
			"the service's `port`")},
	{Name: "weight", What: "The share of new flows, relative to the other backends; 0 takes none.",
		Value: keytable.Field(func(b *lb.Backend) *uint16 { return &b.Weight }, keytable.Number[uint16](0, 65535), 1)},
	{Name: "upper", What: "Flows that have not ended at which the backend is full.",
		Value: keytable.Optional(func(b *lb.Backend) *uint32 {
			return &b.Upper
		}, keytable.Bound[uint32](maxConnections), "never full")},
	{Name: "lower", What: "A full backend takes new flows again when it has fewer flows than this.",
		Refused: "No `upper` beside it, or a smaller one.",
		Value: keytable.Optional(func(b *lb.Backend) *uint32 {
			return &b.Lower
		}, keytable.Number[uint32](1, maxConnections), "`upper`")},
	{Name: "backup", What: "Takes new flows only while no backend does that is no backup.",
		Refused: "A service of nothing but backups, and the scheduler `fo`.",
		Value:   keytable.Field(func(b *lb.Backend) *bool { return &b.Backup }, keytable.Bool, false)},
	{Name: "drain", What: "Takes no new flow, and keeps those it has.",
		Value: keytable.Field(func(b *lb.Backend) *bool { return &b.Draining }, keytable.Bool, false)},
}
