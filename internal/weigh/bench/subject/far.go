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
	"github.com/jeoul/jeoul/internal/weigh/lab"
)

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
	guarded := rules.taken(setup)
	guarded.On = on
	_, err := rulesTask.On(ctx, setup.Lab.Balancer, guarded)
	return err
}
