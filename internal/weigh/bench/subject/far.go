// SPDX-License-Identifier: Apache-2.0

package subject

import (
	"context"
	"errors"
	"fmt"
	"path/filepath"
	"strings"
	"sync"

	"github.com/jeoul/jeoul/internal/balancer/api"
	"github.com/jeoul/jeoul/internal/balancer/lb"
	"github.com/jeoul/jeoul/internal/balancer/ops"
	"github.com/jeoul/jeoul/internal/weigh/bench/probe"
	"github.com/jeoul/jeoul/internal/weigh/lab"
)

// OnMachines says why a subject cannot be weighed in a laboratory of machines; empty
// if it can.
func OnMachines(s Subject, l *lab.Lab) string {
	switch own := s.(type) {
	case direct, routed, haproxyHTTP, haproxyTCP, nginxHTTP, nginxStream, iptablesNth, nftables:
		return ""
	case ipvs:
		if own.way != ipvsTunnel {
			return ""
		}
	case jeoul:
		if own.mode == lb.FullNAT && !l.FullNAT.IsValid() {
			return "full NAT needs a free address of the machines' segment to send from: give jeoul_fullnat_address in the inventory"
		}
		return ""
	}
	return s.Name() +
		" is set up in the laboratory of namespaces only: what it does to a host's network is not taken back on a machine"
}

// FarVersions are the versions of a subject's programs on a host, or the reason why it
// cannot run there.
type FarVersions struct {
	Versions map[string]string
	Missing  string
}

var versionsTask = lab.NewTask("subject-versions",
	func(ctx context.Context, _ *lab.Host, name string) (FarVersions, error) {
		s, ok := Find(name)
		if !ok {
			return FarVersions{}, fmt.Errorf("there is no subject %s", name)
		}
		versions, err := s.Versions(ctx)
		if errors.Is(err, probe.ErrNotInstalled) {
			return FarVersions{Versions: versions, Missing: err.Error()}, nil
		}
		return FarVersions{Versions: versions}, err
	})

// VersionsOn asks a host for the versions of a subject's programs.
func VersionsOn(ctx context.Context, host *lab.Host, s Subject) (FarVersions, error) {
	return versionsTask.On(ctx, host, s.Name())
}

var streamModuleTask = lab.NewTask("nginx-stream-module",
	func(ctx context.Context, _ *lab.Host, _ struct{}) (string, error) {
		return streamModule(ctx)
	})

// statusTask asks jeoul's daemon on a host at its socket.
var statusTask = lab.NewTask("jeoul-status",
	func(ctx context.Context, _ *lab.Host, socket string) (*ops.Status, error) {
		return api.NewClient(socket).Status(ctx)
	})

// holdFar prepares machines as holdVIP does hosts, by the agent's own program.
func holdFar(l *lab.Lab, mode lb.Mode) (holders vipHolders, err error) {
	ctx := context.Background() // every step has its bound
	var mu sync.Mutex
	err = lab.Each(l.Servers, func(server *lab.Host) error {
		args := []string{"agent", "--mode", string(mode), "--interface", server.Interface, "--state-dir",
			filepath.Join(server.Dir, "state")}
		if mode == lb.DSCP {
			args = append(args, "--dscp", fmt.Sprintf("%d=%v", dscpPoint, l.VIP4))
		} else {
			args = append(args, "--vip", l.VIP4.String())
		}
		ready := make(chan struct{})
		var once sync.Once
		p, err := startHeard(ctx, server, func(line string) {
			if strings.HasPrefix(line, "ready;") {
				once.Do(func() { close(ready) })
			}
		}, server.Executable(""), args...)
		if err != nil {
			return err
		}
		mu.Lock()
		holders = append(holders, vipHolder{host: server, program: p})
		mu.Unlock()
		return p.waitUntil(ctx, func() error {
			select {
			case <-ready:
				return nil
			default:
				return errors.New("the agent is not ready")
			}
		})
	})
	if err != nil {
		err = fmt.Errorf("preparing the servers for direct server return: %w", err)
	}
	return holders, err
}

// stopPrograms ends the agents that are programs, all at once.
func (v vipHolders) stopPrograms() []error {
	var all sync.WaitGroup
	errs := make([]error, len(v))
	for i, holder := range v {
		if holder.program != nil {
			all.Go(func() { errs[i] = holder.program.stop(context.Background()) })
		}
	}
	all.Wait()
	return errs
}

// farRules are rules that a machine's worker takes back if the run does not.
type farRules struct {
	// Program reads them behind Args. On says whether they are set now, or were taken
	// back.
	Program string
	Args    []string
	Text    []byte
	On      bool
}

var rulesTask = lab.NewTask("nat-rules", func(_ context.Context, h *lab.Host, r farRules) (struct{}, error) {
	if !r.On {
		h.AtEnd(r.Program, nil)
		return struct{}{}, nil
	}
	h.AtEnd(r.Program, func() error {
		return applyRules(context.Background(), h, "end.rules", r.Text, r.Program, r.Args...)
	})
	return struct{}{}, nil
})

// guardFar has a machine's worker take rules back if the run dies, or not any more.
func guardFar(ctx context.Context, rules natRules, setup Setup, on bool) error {
	if !setup.Lab.Far() {
		return nil
	}
	guarded := farRules{Program: nftProgram, Args: []string{"-f"}, Text: []byte(nftClear), On: on}
	if own, ok := rules.(iptablesRules); ok {
		guarded = farRules{Program: iptablesProgram + "-restore", Args: []string{"-n"},
			Text: own.deleting(setup), On: on}
	}
	_, err := rulesTask.On(ctx, setup.Lab.Balancer, guarded)
	return err
}

// deleting takes the very rules back that a set-up has.
func (r iptablesRules) deleting(setup Setup) []byte {
	return []byte(strings.ReplaceAll(string(r.text(setup, false)), "-A PREROUTING", "-D PREROUTING"))
}

// clearFar takes the very rules back that were set, and the chain if no other program has
// any in it: on a machine they may be others'.
func (r iptablesRules) clearFar(ctx context.Context, setup Setup) error {
	err := restoreIPTables(ctx, setup.Lab.Balancer, r.deleting(setup))
	// That the chain has others' rules is the error that is expected here.
	_ = restoreIPTables(ctx, setup.Lab.Balancer, []byte("*nat\n-X PREROUTING\nCOMMIT\n"))
	return err
}
