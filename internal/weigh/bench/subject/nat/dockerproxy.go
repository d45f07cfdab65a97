// SPDX-License-Identifier: Apache-2.0

package nat

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"net/netip"
	"os"
	"os/exec"
	"path/filepath"
	"strconv"
	"strings"
	"time"

	"github.com/jeoul/jeoul/internal/balancer/lb"
	"github.com/jeoul/jeoul/internal/weigh/bench/probe"
	"github.com/jeoul/jeoul/internal/weigh/bench/subject"
	"github.com/jeoul/jeoul/internal/weigh/lab"
)

// dockerProxy is Docker's user-space relay (docker-proxy, "userland-proxy"): a process for each published port, which
// copies data to the one container behind it. It does not balance, so iptables does so in front of it, as in the second
// document: rules of mode nth send each new connection to one of the relays.
type dockerProxy struct{}

const dockerProxyProgram = "docker-proxy"

// Bounds of docker-proxy.
const (
	// relayFiles is the number of open files for a TCP connection: a socket on each side, and the pipes through which
	// the kernel may move bytes (splice), with two ends in each direction.
	relayFiles = 6
	// relaySpareFiles is the number of files that a relay opens besides connections.
	relaySpareFiles = 50
	// relayPort is the first port of the relays; the DNS experiment has 1053, 1153, … The relays of a service have
	// consecutive ports, and TCP and UDP have the same port.
	relayPort = 10_000
)

func (dockerProxy) Name() string            { return dockerProxyProgram }
func (dockerProxy) Params() []subject.Param { return nil }

func (dockerProxy) Can() subject.Abilities {
	return subject.Abilities{UDP: true, Containers: subject.Anywhere[bool]}
}

// Versions returns the version of the daemon, which is installed with the relay: not every relay prints its own.
func (dockerProxy) Versions(ctx context.Context) (map[string]string, error) {
	if _, err := exec.LookPath(dockerProxyProgram); err != nil {
		return nil, fmt.Errorf("%s is %w: install Docker's engine from your distribution (Debian: docker.io)",
			dockerProxyProgram, probe.ErrNotInstalled)
	}
	versions, err := iptablesVersion(ctx)
	if err != nil {
		return nil, err
	}
	for _, ask := range [][2]string{{"dockerd", "--version"}, {dockerProxyProgram, "-version"}} {
		if version, err := probe.Version(ctx, ask[0], ask[1]); err == nil {
			versions[dockerProxyProgram] = version
			return versions, nil
		}
	}
	versions[dockerProxyProgram] = "unknown: it does not tell, and dockerd is not there"
	return versions, nil
}

// SkipReason counts the connections that one relay may have to hold: all connections of a service with one server.
func (dockerProxy) SkipReason(_ subject.Params, concurrency int, limits probe.Limits) string {
	if most := int(max(limits.OpenFiles, relaySpareFiles)-relaySpareFiles) / relayFiles; concurrency > most {
		return fmt.Sprintf(
			"%d connections at once: docker-proxy may need %d open files for each, and with the limit of %d open files here one can carry %d",
			concurrency, relayFiles, limits.OpenFiles, most)
	}
	return ""
}

func (dockerProxy) Start(ctx context.Context, setup subject.Setup, _ subject.Params) (subject.Running, error) {
	running := &runningRelays{setup: setup}
	err := running.undo.On(func(on bool) error { return subject.OwnVIP(setup.Lab, on) })
	if err == nil {
		err = running.startRelays(ctx)
	}
	if err == nil {
		err = iptablesRules{to: toRelay}.set(ctx, setup, false)
		running.rulesSet = err == nil
	}
	if err != nil {
		return nil, errors.Join(err, running.Stop(context.WithoutCancel(ctx)))
	}
	return running, nil
}

// toRelay returns the address at which the relay for a server listens.
func toRelay(setup subject.Setup, i, j int, _ *lab.Host) netip.AddrPort {
	port := relayPort + j
	for _, before := range setup.Services[:i] {
		port += len(before.Servers)
	}
	return netip.AddrPortFrom(setup.Lab.Balancer.IPv4, uint16(port))
}

type runningRelays struct {
	setup  subject.Setup
	relays []*subject.Program
	undo   subject.Undo
	// rulesSet means that the rules were set.
	rulesSet bool
}

// startRelays starts a relay for each server and protocol, and waits until all listen.
func (r *runningRelays) startRelays(ctx context.Context) error {
	for i, service := range r.setup.Services {
		for j, server := range service.Servers {
			for _, protocol := range service.Protocols() {
				from, to := toRelay(r.setup, i, j, server), toServer(r.setup, i, j, server)
				if err := r.startRelay(ctx, protocol, from, to); err != nil {
					return fmt.Errorf("starting %s for %s: %w", dockerProxyProgram, server.Name, err)
				}
			}
		}
	}
	return nil
}

// relayScript runs the command with the file $0 as its file descriptor 3. docker-proxy reports to this descriptor
// whether its start succeeded, and closes it: without the script, the descriptor would be another file's.
const relayScript = `exec "$@" 3>"$0"`

func (r *runningRelays) startRelay(ctx context.Context, protocol lb.Protocol, from, to netip.AddrPort) error {
	balancer := r.setup.Lab.Balancer
	statusFile := filepath.Join(balancer.Dir, fmt.Sprintf("%s-%s-%d", dockerProxyProgram, protocol, from.Port()))
	if err := os.Remove(statusFile); err != nil && !errors.Is(err, os.ErrNotExist) {
		return err
	}
	// Without sessions of their own, which would give this subject a share of a busy core for each server.
	p, err := subject.StartCommand(ctx, balancer, nil,
		lab.Command{Path: "/bin/sh", Args: []string{"-c", relayScript, statusFile, dockerProxyProgram, "-proto",
			protocol.String(),
			"-host-ip", from.Addr().String(), "-host-port", strconv.Itoa(int(from.Port())),
			"-container-ip", to.Addr().String(), "-container-port", strconv.Itoa(int(to.Port()))}})
	if err != nil {
		return err
	}
	r.relays = append(r.relays, p)
	return p.WaitUntil(ctx, func() error { return relayStarted(statusFile) })
}

// relayStarted returns nil once the relay has reported that it listens. The relay writes 0 in a line, or 1 and the
// error.
func relayStarted(statusFile string) error {
	text, err := os.ReadFile(statusFile)
	if err != nil {
		return err
	}
	status, reason, _ := bytes.Cut(text, []byte("\n"))
	if string(status) != "0" {
		return fmt.Errorf("it has not reported that it listens, but %q", strings.TrimSpace(string(reason)))
	}
	return nil
}

func (r *runningRelays) Target(i int) netip.AddrPort { return r.setup.VIP(i) }

func (*runningRelays) Cores() float64 { return 0 }

func (*runningRelays) Notes() []string {
	return []string{"a process docker-proxy for each server, and iptables (statistic, mode nth) before them; the relays ask the servers from the balancer's own address"}
}

// Quiesce ends the relays. The VIP stays, so that the kernel answers packets for their connections.
func (r *runningRelays) Quiesce(ctx context.Context) error {
	var errs []error
	for _, p := range r.relays {
		errs = append(errs, p.Stop(ctx))
	}
	return errors.Join(errs...)
}

func (r *runningRelays) Stop(ctx context.Context) error {
	err := r.Quiesce(ctx)
	if r.rulesSet {
		err = errors.Join(err, clearNAT(ctx, iptablesRules{}, r.setup))
		r.rulesSet = false
	}
	return errors.Join(err, r.undo.All())
}

// CPUTimes returns the CPU time of each relay.
func (r *runningRelays) CPUTimes() ([]time.Duration, error) {
	var all []time.Duration
	for _, p := range r.relays {
		used, err := p.Process.CPUTime()
		if err != nil {
			return nil, err
		}
		all = append(all, used)
	}
	return all, nil
}
