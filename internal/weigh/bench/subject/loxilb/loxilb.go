// SPDX-License-Identifier: Apache-2.0

// Package loxilb has LoxiLB as a subject.
package loxilb

import (
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"net"
	"net/http"
	"net/netip"
	"os"
	"path/filepath"
	"slices"

	"github.com/vishvananda/netlink"
	"golang.org/x/sys/unix"

	"github.com/jeoul/jeoul/internal/host/netdump"
	"github.com/jeoul/jeoul/internal/host/sysctl"
	"github.com/jeoul/jeoul/internal/weigh/bench/probe"
	"github.com/jeoul/jeoul/internal/weigh/bench/subject"
	"github.com/jeoul/jeoul/internal/weigh/lab"
)

// Subjects are the subjects of this package.
var Subjects = []subject.Subject{loxilb{}}

// loxilb is LoxiLB, an eBPF balancer in TC, in its default mode: it rewrites destinations, and the servers' replies
// pass it. It is set up through its REST API (/netlox/v1), as loxicmd does.
type loxilb struct{}

const loxilbProgram = "loxilb"

// loxilbAPI is the address of its API, in the balancer's namespace.
var loxilbAPI = netip.MustParseAddrPort("127.0.0.1:11111")

// loxilbDevice is a device that LoxiLB creates for itself.
const loxilbDevice = "llb0"

// Paths that LoxiLB uses regardless of its options.
const (
	// loxilbObject is its program in TC. Its build installs the program there beside others.
	loxilbObject = "/opt/loxilb/llb_ebpf_main.o"
	// loxilbPins is the directory of its pinned objects.
	loxilbPins = "/opt/loxilb/dp"
	// loxilbLogs is the directory of its logs.
	loxilbLogs = "/var/log"
)

// loxilbSettings are the sysctls, besides forwarding, that LoxiLB sets and does not restore.
var loxilbSettings = []string{"net.ipv4.conf.all.arp_accept", "net.ipv4.conf.default.arp_accept"}

func (loxilb) Name() string            { return loxilbProgram }
func (loxilb) Params() []subject.Param { return nil }

func (loxilb) Can() subject.Abilities { return subject.Abilities{UDP: true, Packets: true} }

// Versions also requires the eBPF programs, without which LoxiLB crashes at its start. Its error wraps
// probe.ErrNotInstalled if they or the binary are missing.
func (loxilb) Versions(ctx context.Context) (map[string]string, error) {
	version, err := probe.VersionOf(ctx, loxilbProgram, "--version",
		"put its binary into a directory of PATH (no distribution has it: docs.loxilb.io)")
	if _, absent := os.Stat(loxilbObject); err == nil && absent != nil {
		err = fmt.Errorf("LoxiLB's eBPF programs are %w: put those that its build makes into %s (%w)",
			probe.ErrNotInstalled, filepath.Dir(loxilbObject), absent)
	}
	return map[string]string{loxilbProgram: version}, err
}

// SkipReason returns none: LoxiLB needs no file descriptors for connections.
func (loxilb) SkipReason(subject.Params, int, probe.Limits) string { return "" }

// loxilbRule is a port of the VIP, in the form of the API.
type loxilbRule struct {
	Service struct {
		ExternalIP netip.Addr `json:"externalIP"`
		Port       uint16     `json:"port"`
		Protocol   string     `json:"protocol"`
		// Select is 0, which is round robin, and Mode is 0, which is the default mode.
		Select int `json:"sel"`
		Mode   int `json:"mode"`
	} `json:"serviceArguments"`
	Endpoints []loxilbEndpoint `json:"endpoints"`
}

type loxilbEndpoint struct {
	IP     netip.Addr `json:"endpointIP"`
	Port   uint16     `json:"targetPort"`
	Weight int        `json:"weight"`
}

func loxilbRules(setup subject.Setup) []loxilbRule {
	var rules []loxilbRule
	for i, service := range setup.Services {
		for _, protocol := range service.Protocols() {
			var rule loxilbRule
			rule.Service.ExternalIP, rule.Service.Port, rule.Service.Protocol = setup.VIP(i).Addr(), service.Port,
				protocol.String()
			for _, server := range service.Servers {
				rule.Endpoints = append(rule.Endpoints,
					loxilbEndpoint{server.IPv4, service.Port, service.Weight(server)})
			}
			rules = append(rules, rule)
		}
	}
	return rules
}

func (loxilb) Start(ctx context.Context, setup subject.Setup, _ subject.Params) (subject.Running, error) {
	running := &runningLoxiLB{setup: setup}
	err := running.undo.Rewriting(setup.Lab)
	if err == nil {
		err = running.start(ctx)
	}
	if err != nil {
		return nil, errors.Join(err, running.Stop(context.WithoutCancel(ctx)))
	}
	return running, nil
}

type runningLoxiLB struct {
	setup   subject.Setup
	process *subject.Program
	undo    subject.Undo
}

func (r *runningLoxiLB) start(ctx context.Context) error {
	balancer := r.setup.Lab.Balancer
	err := r.undo.On(func(on bool) error { return clearLoxiLB(balancer, on) })
	if err == nil {
		err = r.undo.On(func(on bool) error { return loxilbFiles(balancer, on) })
	}
	if err == nil {
		err = r.keepSettings()
	}
	if err == nil {
		err = r.resolveNeighbours()
	}
	if err != nil {
		return err
	}
	r.process, err = subject.StartProgram(ctx, balancer, loxilbProgram, "--host", loxilbAPI.Addr().String(),
		"--port", fmt.Sprint(loxilbAPI.Port()), "--loglevel", "error")
	if err != nil {
		return err
	}
	return r.configure(ctx)
}

const (
	loxilbRulesPath      = "/netlox/v1/config/loadbalancer"
	loxilbNeighboursPath = "/netlox/v1/config/neighbor/all"
)

// configure waits for LoxiLB and sets its rules. LoxiLB serves its API some seconds before its programs are on the
// link, and until then the kernel refuses the clients. Each of the two waits takes up to half of the limit of
// WaitUntil. The rules are set last: LoxiLB passes its data to its programs once a second, and from version 0.9.8.5 on,
// setting a rule returns only after that.
func (r *runningLoxiLB) configure(ctx context.Context) error {
	err := r.process.WaitUntil(ctx, func() error {
		return r.ask(ctx, http.MethodGet, loxilbRulesPath+"/all", nil, nil)
	})
	if err != nil {
		return fmt.Errorf("waiting for LoxiLB's API: %w", err)
	}
	if err := r.process.WaitUntil(ctx, func() error { return r.checkReady(ctx) }); err != nil {
		return fmt.Errorf("waiting for LoxiLB to be on the link: %w", err)
	}
	for _, rule := range loxilbRules(r.setup) {
		if err := r.ask(ctx, http.MethodPost, loxilbRulesPath, rule, nil); err != nil {
			return fmt.Errorf("setting the rules of LoxiLB: %w%s", err, r.process.LastOutput())
		}
	}
	return nil
}

// keepSettings records how to restore the settings that LoxiLB changes.
func (r *runningLoxiLB) keepSettings() error {
	balancer := r.setup.Lab.Balancer
	return balancer.Do(func() error {
		for _, name := range loxilbSettings {
			before, err := sysctl.Read(name)
			if err != nil {
				return err
			}
			r.undo = append(r.undo, func() error {
				return balancer.Do(func() error { return sysctl.Write(name, before) })
			})
		}
		return nil
	})
}

// neighbours returns the hosts that LoxiLB sends packets to.
func (r *runningLoxiLB) neighbours() []*lab.Host {
	return slices.Concat(r.setup.Lab.Clients, r.setup.Lab.Servers)
}

// resolveNeighbours makes the balancer's kernel resolve the MAC addresses of clients and servers. LoxiLB reads them
// from there. Until it has one, it loses packets to that host, where the kernel would queue them: each client's first
// connection took a second longer.
func (r *runningLoxiLB) resolveNeighbours() error {
	balancer := r.setup.Lab.Balancer
	err := balancer.Do(func() error {
		link, err := netlink.LinkByName(balancer.Interface)
		if err != nil {
			return err
		}
		var errs []error
		for _, host := range r.neighbours() {
			errs = append(errs,
				netlink.NeighSet(&netlink.Neigh{LinkIndex: link.Attrs().Index, IP: host.IPv4.AsSlice(),
					Flags: netlink.NTF_USE}))
		}
		return errors.Join(errs...)
	})
	if err != nil {
		return fmt.Errorf("looking for the neighbours of %s: %w", balancer.Name, err)
	}
	return nil
}

// loxilbNeighbours is the API's list of the neighbours with MAC addresses that LoxiLB knows.
type loxilbNeighbours struct {
	Known []struct {
		IP  netip.Addr `json:"ipAddress"`
		MAC string     `json:"macAddress"`
	} `json:"neighborAttr"`
}

// checkReady returns an error that names the first thing that LoxiLB needs to carry packets and lacks: its program on
// the link, or a neighbour.
func (r *runningLoxiLB) checkReady(ctx context.Context) error {
	if err := r.setup.Lab.Balancer.Do(func() error { return hasProgram(r.setup.Lab.Balancer.Interface) }); err != nil {
		return err
	}
	var neighbours loxilbNeighbours
	if err := r.ask(ctx, http.MethodGet, loxilbNeighboursPath, nil, &neighbours); err != nil {
		return err
	}
	known := map[netip.Addr]string{}
	for _, neighbour := range neighbours.Known {
		known[neighbour.IP] = neighbour.MAC
	}
	for _, host := range r.neighbours() {
		if known[host.IPv4] != host.MAC.String() {
			return fmt.Errorf("it does not know the MAC address of %s (%v)", host.Name, host.IPv4)
		}
	}
	return nil
}

// hasProgram returns an error if packets that arrive at a device pass no eBPF program in TC. It must be called on the
// device's host.
func hasProgram(device string) error {
	link, err := netlink.LinkByName(device)
	if err != nil {
		return err
	}
	filters, err := netdump.Consistent(func() ([]netlink.Filter, error) {
		return netlink.FilterList(link, netlink.HANDLE_MIN_INGRESS)
	})
	if err != nil {
		return err
	}
	if !slices.ContainsFunc(filters, func(f netlink.Filter) bool { return f.Type() == "bpf" }) {
		return fmt.Errorf("no eBPF program is on %s", device)
	}
	return nil
}

// answerBytes is the maximum length of an API's answer in an error.
const answerBytes = 1000

// ask sends a request to the API, which must succeed. If answer is not nil, the response is decoded into it.
func (r *runningLoxiLB) ask(ctx context.Context, method, path string, body, answer any) error {
	var text io.Reader
	if body != nil {
		encoded, err := json.Marshal(body)
		if err != nil {
			return err
		}
		text = bytes.NewReader(encoded)
	}
	request, err := http.NewRequestWithContext(ctx, method, "http://"+loxilbAPI.String()+path, text)
	if err != nil {
		return err
	}
	request.Header.Set("Content-Type", "application/json")
	transport := &http.Transport{DisableKeepAlives: true,
		DialContext: func(ctx context.Context, _, _ string) (net.Conn, error) {
			return probe.Dial(ctx, r.setup.Lab.Balancer, loxilbAPI)
		}}
	response, err := transport.RoundTrip(request)
	if err != nil {
		return err
	}
	defer response.Body.Close()
	if response.StatusCode/100 != 2 {
		body, _ := io.ReadAll(io.LimitReader(response.Body, answerBytes)) // bytes that cannot be read are left out
		return fmt.Errorf("%s %s: %s %q", method, path, response.Status, body)
	}
	if answer == nil {
		return nil
	}
	if err := json.NewDecoder(response.Body).Decode(answer); err != nil {
		return fmt.Errorf("%s %s: %w", method, path, err)
	}
	return nil
}

// loxilbFiles mounts file systems of the balancer's own over LoxiLB's directories, and unmounts them with all their
// content. So a LoxiLB of this machine keeps its pins and logs, and the maps of this one (LoxiLB unpins none when it
// ends) use no memory after its end.
func loxilbFiles(balancer *lab.Host, on bool) error {
	err := balancer.Do(func() error {
		// There may be several mounts: this machine's, ours, and those of LoxiLB's script.
		for more := true; more; {
			var err error
			if more, err = unmount(loxilbPins); err != nil {
				return err
			}
		}
		if !on {
			_, err := unmount(loxilbLogs)
			return err
		}
		if err := os.MkdirAll(loxilbPins, 0o755); err != nil {
			return err
		}
		return errors.Join(
			os.NewSyscallError("mount "+loxilbPins, unix.Mount("bpf", loxilbPins, "bpf", 0, "mode=0700")),
			os.NewSyscallError("mount "+loxilbLogs, unix.Mount("tmpfs", loxilbLogs, "tmpfs", 0, "mode=0755")),
		)
	})
	if err != nil {
		return fmt.Errorf("the directories of LoxiLB: %w", err)
	}
	return nil
}

// unmount unmounts the topmost file system of a directory, and reports whether there was one.
func unmount(dir string) (bool, error) {
	err := unix.Unmount(dir, unix.MNT_DETACH)
	if errors.Is(err, unix.EINVAL) || errors.Is(err, unix.ENOENT) {
		return false, nil
	}
	return err == nil, os.NewSyscallError("unmount "+dir, err)
}

// clearLoxiLB removes everything that LoxiLB may leave on the balancer: its device, and its programs on the link. It
// does nothing when LoxiLB is about to start.
func clearLoxiLB(balancer *lab.Host, on bool) error {
	if on {
		return nil
	}
	err := balancer.Do(func() error {
		link, err := netlink.LinkByName(balancer.Interface)
		if err != nil {
			return err
		}
		errs := []error{netlink.LinkSetXdpFd(link, -1)}
		qdiscs, err := netdump.Consistent(func() ([]netlink.Qdisc, error) { return netlink.QdiscList(link) })
		errs = append(errs, err)
		for _, qdisc := range qdiscs {
			if qdisc.Attrs().Parent == netlink.HANDLE_CLSACT {
				errs = append(errs, netlink.QdiscDel(qdisc))
			}
		}
		if own, err := netlink.LinkByName(loxilbDevice); err == nil {
			errs = append(errs, netlink.LinkDel(own))
		}
		return errors.Join(errs...)
	})
	if err != nil {
		return fmt.Errorf("clearing what LoxiLB left: %w", err)
	}
	return nil
}

func (r *runningLoxiLB) Target(i int) netip.AddrPort { return r.setup.VIP(i) }

func (*runningLoxiLB) Cores() float64                { return 0 }
func (*runningLoxiLB) Quiesce(context.Context) error { return nil }

func (*runningLoxiLB) Notes() []string {
	return []string{"LoxiLB in its default mode, round robin; the servers' way to the clients is through the balancer"}
}

func (r *runningLoxiLB) Stop(ctx context.Context) error {
	return errors.Join(r.process.Stop(ctx), r.undo.All())
}
