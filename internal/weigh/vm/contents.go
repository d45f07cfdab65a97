// SPDX-License-Identifier: Apache-2.0

package vm

// busyboxProgram contains depmod, for this machine, and modprobe, for the virtual one, where the kernel calls it. It
// must be linked statically.
const busyboxProgram = "busybox"

// programs are the programs that a laboratory runs. Those installed here go into the machine with the libraries that
// they are linked with. Without the others, a laboratory in the machine does as it does without them here.
var programs = []string{
	"ab", "wrk", "iperf3", "dnsperf", "netperf", "netserver",
	"nginx", "named", "haproxy", "keepalived", "ipvsadm", "bird", "birdc", "docker-proxy", "envoy", "loxilb",
	"iptables", "iptables-restore", "iptables-save", "ip6tables", "ip6tables-restore", "nft",
	"openssl", "ip", "tc", "ethtool", "bpftool",
}

// plugins are the modules that some of the programs load while they run.
var plugins = []string{
	"/usr/lib/nginx/modules/*.so",
	"/usr/lib/*-linux-gnu/xtables/*.so",
	"/usr/lib/*-linux-gnu/ossl-modules/*.so",
	"/usr/lib/*-linux-gnu/bind/*.so",
	"/usr/lib/*-linux-gnu/libnss_files.so.2",
}

// data are files that some of the programs read.
var data = []string{
	"/etc/services", "/etc/protocols", "/etc/ssl/openssl.cnf", "/usr/lib/ssl/openssl.cnf",
	"/etc/bind/bind.keys", "/usr/share/dns/root.hints", "/etc/iproute2/rt_tables",
}

// directories are the directories that the programs and the laboratory expect.
var directories = []string{
	"dev", "proc", "sys", "run", "tmp", "root", "etc", "usr/bin", "usr/sbin", "usr/lib", "usr/lib64",
	"var/tmp", "var/log/nginx", "var/lib/nginx", "var/lib/haproxy", "var/cache/bind",
}

// texts are files that replace this machine's own, which do not suit the virtual machine.
var texts = map[string]string{
	"etc/passwd":        "root:x:0:0:root:/root:/bin/sh\nbind:x:101:101::/var/cache/bind:/bin/false\nwww-data:x:33:33::/var/www:/bin/false\nhaproxy:x:102:102::/var/lib/haproxy:/bin/false\nnobody:x:65534:65534::/:/bin/false\n",
	"etc/group":         "root:x:0:\nbind:x:101:\nwww-data:x:33:\nhaproxy:x:102:\nnogroup:x:65534:\n",
	"etc/nsswitch.conf": "passwd: files\ngroup: files\nhosts: files\nservices: files\nprotocols: files\n",
	"etc/hosts":         "127.0.0.1 localhost\n::1 localhost\n",
}

// modules are loaded before the job begins: the kernel loads the other modules by itself when they are needed, but not
// all of these, and not from within a namespace.
var modules = []string{
	"virtio_pci", "virtio_console",
	"veth", "bridge", "sch_ingress", "cls_bpf", "tcp_diag", "udp_diag",
	"nf_conntrack", "nf_conntrack_netlink", "nf_tables", "nft_compat", "ip_tables",
	"ip_vs", "ip_vs_rr", "ip_vs_wrr", "ip_vs_lc", "ip_vs_wlc", "ip_vs_sh", "ip_vs_mh",
	"ipip", "ip6_tunnel", "sit", "fou", "fou6", "dummy",
}
