// SPDX-License-Identifier: Apache-2.0

package ipvs

import (
	"context"
	_ "embed"
	"errors"
	"fmt"
	"maps"
	"net/netip"
	"os"
	"path/filepath"
	"strconv"
	"strings"
	"syscall"
	"text/template"
	"time"

	moby "github.com/moby/ipvs"

	"github.com/jeoul/jeoul/internal/host/sysctl"
	"github.com/jeoul/jeoul/internal/weigh/bench/probe"
	"github.com/jeoul/jeoul/internal/weigh/bench/subject"
	"github.com/jeoul/jeoul/internal/weigh/lab"
)

// keepalived is the kernel's IPVS with weighted round robin. keepalived checks its servers, removes them and adds them
// back.
type keepalived struct {
	// method is the forwarding method. The subject's name ends in it.
	method ipvsMethod
}

const keepalivedProgram = "keepalived"

func (s keepalived) Name() string          { return keepalivedProgram + "-" + string(s.method) }
func (keepalived) Params() []subject.Param { return nil }

// SkipReason returns none: IPVS needs no file descriptors for connections.
func (keepalived) SkipReason(subject.Params, int, probe.Limits) string { return "" }

func (s keepalived) Can() subject.Abilities {
	return subject.Abilities{UDP: true, Changes: true, Restarts: true, DirectReplies: s.method != ipvsMasquerade}
}

// Versions returns an error that wraps probe.ErrNotInstalled if there is no keepalived, or if this kernel has no IPVS.
func (keepalived) Versions(ctx context.Context) (map[string]string, error) {
	program, err := probe.VersionOf(ctx, keepalivedProgram, "--version",
		"run `make deps-vm`, or install it from your distribution")
	if err != nil {
		return nil, err
	}
	kernel, err := kernelIPVS(ctx)
	return map[string]string{keepalivedProgram: program, "ipvs": kernel}, err
}

//go:embed keepalived.conf.tmpl
var keepalivedText string

var keepalivedConfig = template.Must(template.New("keepalived.conf").Parse(keepalivedText))

// keepalivedService is a virtual server of keepalived.
type keepalivedService struct {
	ipvsService
	// Method is the forwarding method (lvs_method).
	Method string
	Check  *keepalivedCheck
}

// keepalivedCheck is a [subject.Check] in keepalived's terms. keepalived has no Rise: one passed check adds a server
// back.
type keepalivedCheck struct {
	Port uint16
	// Interval and Timeout are in seconds. A failed check is repeated Interval after its end.
	Interval, Timeout string
	// Retries is the number of failed checks, after the first, that remove a server.
	Retries int
}

// services returns the virtual servers of a set-up.
func (s keepalived) services(setup subject.Setup) []keepalivedService {
	seconds := func(d time.Duration) string { return strconv.FormatFloat(d.Seconds(), 'f', -1, 64) }
	var all []keepalivedService
	for _, service := range ipvsServices(setup) {
		of := keepalivedService{ipvsService: service, Method: strings.ToUpper(string(s.method))}
		if check := service.Check; check != nil {
			of.Check = &keepalivedCheck{Port: check.Port, Interval: seconds(check.Interval),
				Timeout: seconds(check.Timeout), Retries: check.Fall - 1}
		}
		all = append(all, of)
	}
	return all
}

func (s keepalived) Start(ctx context.Context, setup subject.Setup, _ subject.Params) (subject.Running, error) {
	running := &runningKeepalived{subject: s, runningIPVS: runningIPVS{method: s.method, setup: setup}}
	err := running.prepare()
	if err == nil {
		err = running.undo.On(running.expireRemoved)
	}
	if err == nil {
		err = running.begin(ctx)
	}
	if err != nil {
		return nil, errors.Join(err, running.Stop(context.WithoutCancel(ctx)))
	}
	return running, nil
}

// runningKeepalived is a running keepalived, which adds servers to the kernel's table and removes them.
type runningKeepalived struct {
	runningIPVS
	subject keepalived
	process *subject.Program
	// previousExpire is the previous value of the sysctl forgetConnections.
	previousExpire string
}

// expireRemoved makes the kernel delete connections of removed servers.
func (r *runningKeepalived) expireRemoved(on bool) error {
	return r.setup.Lab.Balancer.Do(func() (err error) {
		if !on {
			return sysctl.Write(forgetConnections, r.previousExpire)
		}
		if r.previousExpire, err = sysctl.Read(forgetConnections); err != nil {
			return err
		}
		return sysctl.Write(forgetConnections, "1")
	})
}

func (r *runningKeepalived) path() string {
	return filepath.Join(r.setup.Lab.Balancer.Dir, "keepalived.conf")
}

func (r *runningKeepalived) configure(services []subject.Service) error {
	return subject.WriteConfig(r.setup.Lab.Balancer, r.path(), keepalivedConfig,
		r.subject.services(r.setup.With(services)))
}

// begin starts keepalived, and returns when the kernel has all servers.
func (r *runningKeepalived) begin(ctx context.Context) (err error) {
	if err := r.configure(r.setup.Services); err != nil {
		return err
	}
	balancer := r.setup.Lab.Balancer
	file := func(name string) string { return filepath.Join(balancer.Dir, name) }
	// Checks only, in the foreground, with files of its own: another keepalived may run on the machine.
	r.process, err = subject.StartProgram(ctx, balancer, keepalivedProgram, "--check", "--dont-fork", "--log-console",
		"--use-file", r.path(), "--pid", file("keepalived.pid"), "--checkers_pid", file("checkers.pid"))
	if err != nil {
		return err
	}
	return r.process.WaitUntil(ctx, r.settled)
}

// keepalivedTable has the weights of the servers in the kernel, by service and by the server's address.
type keepalivedTable map[string]map[netip.AddrPort]int

// key identifies a service in the kernel's table.
func (s ipvsService) key() string { return fmt.Sprintf("%s %v", s.Protocol, s.At) }

// table reads the services and servers of the kernel.
func (r *runningKeepalived) table() (keepalivedTable, error) {
	table := keepalivedTable{}
	err := onIPVS(r.setup.Lab.Balancer, func(kernel *moby.Handle) error {
		for _, s := range ipvsServices(r.setup) {
			servers := map[netip.AddrPort]int{}
			// A service that keepalived has not created yet has no servers.
			if service := s.kernel(); kernel.IsServicePresent(service) {
				destinations, err := kernel.GetDestinations(service)
				if err != nil {
					return fmt.Errorf("%s: %w", s.key(), err)
				}
				for _, d := range destinations {
					address, _ := netip.AddrFromSlice(d.Address)
					servers[netip.AddrPortFrom(address.Unmap(), d.Port)] = d.Weight
				}
			}
			table[s.key()] = servers
		}
		return nil
	})
	if err != nil {
		return nil, fmt.Errorf("asking the kernel for IPVS's servers: %w", err)
	}
	return table, nil
}

// settled returns nil once the kernel has all servers with their weights, and no other servers.
func (r *runningKeepalived) settled() error {
	got, err := r.table()
	if err != nil {
		return err
	}
	for _, s := range ipvsServices(r.setup) {
		want := map[netip.AddrPort]int{}
		for _, server := range s.Servers {
			want[server.At] = server.Weight
		}
		if !maps.Equal(want, got[s.key()]) {
			return fmt.Errorf("IPVS has %v for %s, not %v", got[s.key()], s.key(), want)
		}
	}
	return nil
}

// Serves reports whether the kernel has the server: a failing server is removed (inhibit_on_failure is off).
func (r *runningKeepalived) Serves(_ context.Context, server *lab.Host) (bool, error) {
	table, err := r.table()
	if err != nil {
		return false, err
	}
	return table.serves(server.IPv4)
}

// serves reports whether a server is in all services; it returns an error if the server is only in some.
func (t keepalivedTable) serves(server netip.Addr) (bool, error) {
	in := 0
	for _, servers := range t {
		for at := range servers {
			if at.Addr() == server {
				in++
			}
		}
	}
	if in != 0 && in != len(t) {
		return false, fmt.Errorf("%v is in %d of %d services of IPVS", server, in, len(t))
	}
	return in > 0, nil
}

// Change writes the configuration again and makes keepalived read it.
func (r *runningKeepalived) Change(ctx context.Context, services []subject.Service) error {
	if err := r.configure(services); err != nil {
		return err
	}
	r.setup = r.setup.With(services)
	return r.Reload(ctx)
}

// Reload sends SIGHUP, and returns when the kernel has the servers of the configuration.
func (r *runningKeepalived) Reload(ctx context.Context) error {
	if err := r.process.Process.Signal(syscall.SIGHUP); err != nil {
		return fmt.Errorf("reloading keepalived: %w", err)
	}
	return r.process.WaitUntil(ctx, r.settled)
}

// PIDs returns the main process, and the process that runs the checks.
func (r *runningKeepalived) PIDs() []int {
	pids := []int{r.process.Process.PID()}
	text, err := os.ReadFile(filepath.Join(r.setup.Lab.Balancer.Dir, "checkers.pid"))
	if err != nil {
		return pids
	}
	if pid, err := strconv.Atoi(strings.TrimSpace(string(text))); err == nil {
		pids = append(pids, pid)
	}
	return pids
}

func (*runningKeepalived) ChangeMethod() string {
	return "each change is a new configuration and a reload (SIGHUP); a server that drains has the weight 0; " +
		"connections of a server that is taken out are forgotten (net.ipv4.vs.expire_nodest_conn)"
}

func (r *runningKeepalived) Notes() []string {
	notes := []string{r.method.note(moby.WeightedRoundRobin)}
	if r.setup.Services[0].Check == nil {
		return append(notes, "keepalived fills its table, without health checks")
	}
	return append(notes, "keepalived fills its table, with health checks (HTTP_GET): "+
		"a failed one is made again an interval after its end, and one that passes puts a server back")
}

// Stop ends keepalived, which removes its services, and undoes the set-up.
func (r *runningKeepalived) Stop(ctx context.Context) error {
	return errors.Join(r.process.Stop(ctx), r.runningIPVS.Stop(ctx))
}

// Restart ends keepalived (SIGTERM), which removes its services from the kernel's table, and starts another one.
func (r *runningKeepalived) Restart(ctx context.Context) error {
	if err := r.End(ctx); err != nil {
		return err
	}
	return r.Begin(ctx)
}

// End ends keepalived (SIGTERM).
func (r *runningKeepalived) End(ctx context.Context) error { return r.process.Stop(ctx) }

// Kill ends keepalived and its checking process at once: otherwise the latter would notice, and remove the services.
func (r *runningKeepalived) Kill(ctx context.Context) error { return r.process.Process.Kill(ctx) }

// Begin starts keepalived, and returns when the kernel has all servers.
func (r *runningKeepalived) Begin(ctx context.Context) error { return r.begin(ctx) }
