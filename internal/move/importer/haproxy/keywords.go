// SPDX-License-Identifier: Apache-2.0

package haproxy

import "github.com/jeoul/jeoul/internal/move/importer/draft"

// Places of Keywords: in a bind, a server, an option, a timeout, or as the first word of a line in a section.
const (
	inBind    = "bind"
	inServer  = "server"
	inOption  = "option"
	inTimeout = "timeout"
	inGlobal  = "global"
	inSection = "section"
)

// Why a word changes nothing, where several have one reason.
const (
	ownProcess  = "is of HAProxy's process and the rights that it starts with; Jeoul starts its engine itself"
	ownMemory   = "bounds memory and work of HAProxy's process, and no connection"
	ownLog      = "says what HAProxy logs, and Jeoul's counters are another thing: `jeoul status`, and metrics"
	ownSockets  = "is of HAProxy's own sockets: the bytes that either side gets are the same"
	ownCounters = "says how HAProxy counts"
	ownPool     = "says how many idle connections to a server HAProxy keeps for the next request, and not which server gets that"
	ownNumber   = "names it in HAProxy's statistics"
	oldTLS      = "forbids a version older than TLS 1.2, which Jeoul's engine does not speak"
	ofNames     = "says how the name of a host is looked up; an address is not"
	ofHTTP      = "is of HTTP, which nothing here is"
)

// Keywords are those that change nothing of what clients and servers see.
var Keywords = draft.Keywords{
	{Where: inBind, Name: "backlog", Example: "backlog 100", Why: "bounds the connections that the kernel keeps until HAProxy takes them"},
	{Where: inBind, Name: "defer-accept", Example: "defer-accept", Why: "has the kernel wait for the first data; who is served stays the same"},
	{Where: inBind, Name: "expose-fd", Example: "", Why: ownProcess},
	{Where: inBind, Name: "id", Example: "id 7", Why: ownNumber},
	{Where: inBind, Name: "name", Example: "name web", Why: ownNumber},
	{Where: inBind, Name: "nice", Example: "nice 10", Why: "says which of HAProxy's connections is worked on first"},
	{Where: inBind, Name: "process", Example: "process 1", Why: "says which process or thread takes a connection"},
	{Where: inBind, Name: "shards", Example: "shards 1", Why: "says how many sockets HAProxy opens for one address"},
	{Where: inBind, Name: "tfo", Example: "tfo", Why: "saves a round trip; clients without it are served the same"},
	{Where: inBind, Name: "thread", Example: "thread 1", Why: "says which process or thread takes a connection"},
	{Where: inBind, Name: "transparent", Example: "transparent", Why: "permits an address that the host does not have; Jeoul puts the VIP onto an interface"},
	{Where: inBind, Name: "no-ca-names", Example: "", Why: "is of certificates that clients are asked for, and an address that asks is left out"},
	{Where: inBind, Name: "no-sslv3", Example: "", Why: oldTLS},
	{Where: inBind, Name: "no-tlsv10", Example: "", Why: oldTLS},
	{Where: inBind, Name: "no-tlsv11", Example: "", Why: oldTLS},
	{Where: inBind, Name: "npn", Example: "", Why: "is the forerunner of ALPN, which no client of today speaks"},

	{Where: inServer, Name: "id", Example: "id 7", Why: ownNumber},
	{Where: inServer, Name: "init-addr", Example: "init-addr none", Why: ofNames},
	{Where: inServer, Name: "resolve-net", Example: "resolve-net 10.0.0.0/8", Why: ofNames},
	{Where: inServer, Name: "resolve-opts", Example: "resolve-opts allow-dup-ip", Why: ofNames},
	{Where: inServer, Name: "resolve-prefer", Example: "resolve-prefer ipv4", Why: ofNames},
	{Where: inServer, Name: "resolvers", Example: "", Why: ofNames},
	{Where: inServer, Name: "max-reuse", Example: "max-reuse 100", Why: ownPool},
	{Where: inServer, Name: "pool-low-conn", Example: "pool-low-conn 4", Why: ownPool},
	{Where: inServer, Name: "pool-max-conn", Example: "pool-max-conn 4", Why: ownPool},
	{Where: inServer, Name: "pool-purge-delay", Example: "pool-purge-delay 5s", Why: ownPool},
	{Where: inServer, Name: "log-proto", Example: "log-proto octet-count", Why: "is of servers of a log, which are of no service"},
	{Where: inServer, Name: "stick", Example: "stick", Why: "is so without it"},
	{Where: inServer, Name: "tfo", Example: "tfo", Why: "saves a round trip; the connection's content stays the same"},
	{Where: inServer, Name: "no-tfo", Example: "no-tfo", Why: "is so without it"},
	{Where: inServer, Name: "ssl-reuse", Example: "ssl-reuse", Why: "saves handshakes; the connection's content stays the same"},
	{Where: inServer, Name: "no-ssl-reuse", Example: "no-ssl-reuse", Why: "asks for a handshake each time; the connection's content stays the same"},
	{Where: inServer, Name: "tls-tickets", Example: "tls-tickets", Why: "saves handshakes; the connection's content stays the same"},
	{Where: inServer, Name: "no-tls-tickets", Example: "no-tls-tickets", Why: "asks for a handshake each time; the connection's content stays the same"},
	{Where: inServer, Name: "no-check-send-proxy", Example: "no-check-send-proxy", Why: "is so without it"},
	{Where: inServer, Name: "no-sslv3", Example: "no-sslv3", Why: oldTLS},
	{Where: inServer, Name: "no-tlsv10", Example: "no-tlsv10", Why: oldTLS},
	{Where: inServer, Name: "no-tlsv11", Example: "no-tlsv11", Why: oldTLS},

	{Where: inOption, Name: "dontlognull", Example: "option dontlognull", Why: ownLog},
	{Where: inOption, Name: "dontlog-normal", Example: "option dontlog-normal", Why: ownLog},
	{Where: inOption, Name: "log-separate-errors", Example: "option log-separate-errors", Why: ownLog},
	{Where: inOption, Name: "log-health-checks", Example: "option log-health-checks", Why: ownLog},
	{Where: inOption, Name: "logasap", Example: "option logasap", Why: ownLog},
	{Where: inOption, Name: "contstats", Example: "option contstats", Why: ownCounters},
	{Where: inOption, Name: "socket-stats", Example: "option socket-stats", Why: ownCounters},
	{Where: inOption, Name: "splice-auto", Example: "option splice-auto", Why: "says how HAProxy copies bytes"},
	{Where: inOption, Name: "splice-request", Example: "option splice-request", Why: "says how HAProxy copies bytes"},
	{Where: inOption, Name: "splice-response", Example: "option splice-response", Why: "says how HAProxy copies bytes"},
	{Where: inOption, Name: "tcp-smart-accept", Example: "option tcp-smart-accept", Why: "saves a packet; " + ownSockets},
	{Where: inOption, Name: "tcp-smart-connect", Example: "option tcp-smart-connect", Why: "saves a packet; " + ownSockets},
	{Where: inOption, Name: "tcpka", Example: "option tcpka", Why: "has HAProxy's kernel ask whether the other end is there; either end may do so itself"},
	{Where: inOption, Name: "clitcpka", Example: "option clitcpka", Why: "has HAProxy's kernel ask whether the other end is there; either end may do so itself"},
	{Where: inOption, Name: "srvtcpka", Example: "option srvtcpka", Why: "has HAProxy's kernel ask whether the other end is there; either end may do so itself"},
	{Where: inOption, Name: "nolinger", Example: "option nolinger", Why: "ends HAProxy's sockets without waiting, once their connection has ended"},
	{Where: inOption, Name: "idle-close-on-response", Example: "option idle-close-on-response", Why: "is so in mode proxy"},

	{Where: inTimeout, Name: "queue", Example: "timeout queue 10s", Why: "bounds how long a connection waits for a server that is full; here none waits"},
	{Where: inTimeout, Name: "http-request", Example: "timeout http-request 10s", Why: ofHTTP},
	{Where: inTimeout, Name: "http-keep-alive", Example: "timeout http-keep-alive 10s", Why: ofHTTP},
	{Where: inTimeout, Name: "tarpit", Example: "timeout tarpit 10s", Why: "bounds how long a refused request waits, and no rule here refuses one"},

	{Where: inSection, Name: "backlog", Example: "backlog 100", Why: "bounds the connections that the kernel keeps until HAProxy takes them"},
	{Where: inSection, Name: "bind-process", Example: "", Why: "says which process or thread takes a connection"},
	{Where: inSection, Name: "description", Example: "description web", Why: ownNumber},
	{Where: inSection, Name: "enabled", Example: "enabled", Why: "is so without it"},
	{Where: inSection, Name: "fullconn", Example: "fullconn 1000", Why: "says from when minconn of a server grows, and each minconn has a remark of its own"},
	{Where: inSection, Name: "guid", Example: "", Why: ownNumber},
	{Where: inSection, Name: "hash-type", Example: "hash-type consistent", Why: "Jeoul's hashes are consistent: few clients move when a backend comes or goes"},
	{Where: inSection, Name: "id", Example: "id 77", Why: ownNumber},
	{Where: inSection, Name: "max-keep-alive-queue", Example: "max-keep-alive-queue 10", Why: ownPool},
	{Where: inSection, Name: "clitcpka-cnt", Example: "clitcpka-cnt 3", Why: "has HAProxy's kernel ask whether the other end is there; either end may do so itself"},
	{Where: inSection, Name: "clitcpka-idle", Example: "clitcpka-idle 30s", Why: "has HAProxy's kernel ask whether the other end is there; either end may do so itself"},
	{Where: inSection, Name: "clitcpka-intvl", Example: "clitcpka-intvl 5s", Why: "has HAProxy's kernel ask whether the other end is there; either end may do so itself"},
	{Where: inSection, Name: "srvtcpka-cnt", Example: "srvtcpka-cnt 3", Why: "has HAProxy's kernel ask whether the other end is there; either end may do so itself"},
	{Where: inSection, Name: "srvtcpka-idle", Example: "srvtcpka-idle 30s", Why: "has HAProxy's kernel ask whether the other end is there; either end may do so itself"},
	{Where: inSection, Name: "srvtcpka-intvl", Example: "srvtcpka-intvl 5s", Why: "has HAProxy's kernel ask whether the other end is there; either end may do so itself"},
	{Where: inSection, Name: "load-server-state-from-file", Example: "load-server-state-from-file none", Why: "is of what HAProxy remembers over its own restart; Jeoul keeps its own"},
	{Where: inSection, Name: "server-state-file-name", Example: "", Why: "is of what HAProxy remembers over its own restart; Jeoul keeps its own"},

	{Where: inGlobal, Name: "chroot", Example: "chroot /var/empty", Why: ownProcess},
	{Where: inGlobal, Name: "daemon", Example: "daemon", Why: ownProcess},
	{Where: inGlobal, Name: "description", Example: "description text", Why: ownNumber},
	{Where: inGlobal, Name: "external-check", Example: "external-check", Why: "permits programs as checks, which Jeoul permits"},
	{Where: inGlobal, Name: "fd-hard-limit", Example: "", Why: ownProcess},
	{Where: inGlobal, Name: "gid", Example: "gid 65534", Why: ownProcess},
	{Where: inGlobal, Name: "group", Example: "group nogroup", Why: ownProcess},
	{Where: inGlobal, Name: "insecure-fork-wanted", Example: "insecure-fork-wanted", Why: ownProcess},
	{Where: inGlobal, Name: "insecure-setuid-wanted", Example: "insecure-setuid-wanted", Why: ownProcess},
	{Where: inGlobal, Name: "localpeer", Example: "localpeer lb1", Why: "names this HAProxy among peers, and their section is left out with a remark"},
	{Where: inGlobal, Name: "master-worker", Example: "master-worker", Why: ownProcess},
	{Where: inGlobal, Name: "max-spread-checks", Example: "max-spread-checks 5s", Why: "spreads the starts of checks, as Jeoul does"},
	{Where: inGlobal, Name: "spread-checks", Example: "spread-checks 5", Why: "spreads the starts of checks, as Jeoul does"},
	{Where: inGlobal, Name: "maxpipes", Example: "maxpipes 100", Why: ownMemory},
	{Where: inGlobal, Name: "mworker-max-reloads", Example: "mworker-max-reloads 3", Why: ownProcess},
	{Where: inGlobal, Name: "nbproc", Example: "nbproc 1", Why: ownProcess},
	{Where: inGlobal, Name: "nbthread", Example: "nbthread 2", Why: ownProcess},
	{Where: inGlobal, Name: "cpu-map", Example: "cpu-map 1/all 0", Why: ownProcess},
	{Where: inGlobal, Name: "hard-stop-after", Example: "hard-stop-after 30s", Why: ownProcess},
	{Where: inGlobal, Name: "no-memory-trimming", Example: "no-memory-trimming", Why: ownMemory},
	{Where: inGlobal, Name: "node", Example: "node lb1", Why: ownNumber},
	{Where: inGlobal, Name: "numa-cpu-mapping", Example: "numa-cpu-mapping", Why: ownProcess},
	{Where: inGlobal, Name: "pidfile", Example: "pidfile /run/haproxy.pid", Why: ownProcess},
	{Where: inGlobal, Name: "presetenv", Example: "presetenv A b", Why: "sets a variable, and each line that goes by one has a remark"},
	{Where: inGlobal, Name: "setenv", Example: "setenv A b", Why: "sets a variable, and each line that goes by one has a remark"},
	{Where: inGlobal, Name: "unsetenv", Example: "unsetenv A", Why: "sets a variable, and each line that goes by one has a remark"},
	{Where: inGlobal, Name: "resetenv", Example: "resetenv A", Why: "sets a variable, and each line that goes by one has a remark"},
	{Where: inGlobal, Name: "quiet", Example: "quiet", Why: ownLog},
	{Where: inGlobal, Name: "zero-warning", Example: "", Why: ownProcess},
	{Where: inGlobal, Name: "server-state-base", Example: "server-state-base /tmp", Why: "is of what HAProxy remembers over its own restart; Jeoul keeps its own"},
	{Where: inGlobal, Name: "server-state-file", Example: "server-state-file none", Why: "is of what HAProxy remembers over its own restart; Jeoul keeps its own"},
	{Where: inGlobal, Name: "set-dumpable", Example: "set-dumpable", Why: ownProcess},
	{Where: inGlobal, Name: "stats", Example: "stats timeout 30s", Why: "is HAProxy's socket; Jeoul has one of its own: `jeoul status`, and the API"},
	{Where: inGlobal, Name: "strict-limits", Example: "strict-limits", Why: ownProcess},
	{Where: inGlobal, Name: "thread-group", Example: "thread-group 1 1", Why: ownProcess},
	{Where: inGlobal, Name: "thread-groups", Example: "thread-groups 1", Why: ownProcess},
	{Where: inGlobal, Name: "uid", Example: "uid 65534", Why: ownProcess},
	{Where: inGlobal, Name: "ulimit-n", Example: "ulimit-n 65536", Why: ownProcess},
	{Where: inGlobal, Name: "unix-bind", Example: "unix-bind mode 600", Why: "is of addresses that are files, each of which has a remark"},
	{Where: inGlobal, Name: "user", Example: "user nobody", Why: ownProcess},
	{Where: inGlobal, Name: "crt-base", Example: "crt-base /etc/ssl", Why: "is of files of certificates, which are of services of mode proxy"},
	{Where: inGlobal, Name: "ca-base", Example: "ca-base /etc/ssl", Why: "is of files of certificates, and read where a check has one"},
	{Where: inGlobal, Name: "close-spread-time", Example: "close-spread-time 1s", Why: "is of HAProxy's stop"},
	{Where: inGlobal, Name: "grace", Example: "grace 1s", Why: "is of HAProxy's stop"},
	{Where: inGlobal, Name: "profiling.tasks", Example: "profiling.tasks off", Why: ownCounters},
	{Where: inGlobal, Name: "busy-polling", Example: "busy-polling", Why: ownProcess},
	{Where: inGlobal, Name: "noepoll", Example: "noepoll", Why: ownProcess},
	{Where: inGlobal, Name: "nopoll", Example: "nopoll", Why: ownProcess},
	{Where: inGlobal, Name: "nosplice", Example: "nosplice", Why: "says how HAProxy copies bytes"},
	{Where: inGlobal, Name: "nogetaddrinfo", Example: "nogetaddrinfo", Why: ofNames},
	{Where: inGlobal, Name: "noreuseport", Example: "noreuseport", Why: ownProcess},
	{Where: inGlobal, Name: "tune.", Example: "tune.bufsize 16384", Why: ownMemory},
	{Where: inGlobal, Name: "ssl-", Example: "ssl-server-verify none", Why: "is of TLS that HAProxy speaks, which is of services of mode proxy"},
}
