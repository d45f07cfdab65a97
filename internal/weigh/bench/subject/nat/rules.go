// SPDX-License-Identifier: Apache-2.0

package nat

import (
	"context"
	"fmt"
	"path/filepath"

	"github.com/jeoul/jeoul/internal/weigh/bench/subject"
	"github.com/jeoul/jeoul/internal/weigh/lab"
)

// natRules sets up NAT rules in the kernel by a program.
type natRules interface {
	// set sets the rules for a set-up. With anew, they replace existing rules in one transaction, so that no packet
	// meets only half of them.
	set(ctx context.Context, setup subject.Setup, anew bool) error
	// clear removes the rules, and with them the tracking of connections.
	clear(ctx context.Context, setup subject.Setup) error
	// removal returns how a machine that has lost its bench removes the rules.
	removal(setup subject.Setup) remoteRules
	// can returns an error that wraps [subject.ErrCannot] and gives the reason if the rules cannot balance services.
	can(services []subject.Service) error
	// note describes the rules, and changeMethod how they change.
	note() string
	changeMethod() string
}

// applyRules writes rules to a file and runs a program that sets them in the kernel.
func applyRules(ctx context.Context, host *lab.Host, name string, rules []byte, program string, args ...string) error {
	path := filepath.Join(host.Dir, name)
	if err := host.WriteFile(path, rules); err != nil {
		return fmt.Errorf("writing rules for %s: %w", program, err)
	}
	p, err := subject.StartProgram(ctx, host, program, append(args, path)...)
	if err != nil {
		return err
	}
	if err := p.Process.Wait(); err != nil {
		return fmt.Errorf("setting rules with %s: %w%s", program, err, p.LastOutput())
	}
	return nil
}

// remoteRules is the text by which a machine's worker undoes rules if the run does not.
type remoteRules struct {
	// Program reads Text, after the arguments Args. On reports whether the rules are set now, or were undone.
	Program string
	Args    []string
	Text    []byte
	On      bool
}

var rulesTask = lab.NewTask("nat-rules", func(_ context.Context, h *lab.Host, r remoteRules) (struct{}, error) {
	if !r.On {
		h.AtEnd(r.Program, nil)
		return struct{}{}, nil
	}
	h.AtEnd(r.Program, func() error {
		return applyRules(context.Background(), h, "end.rules", r.Text, r.Program, r.Args...)
	})
	return struct{}{}, nil
})

// guardRemote makes a machine's worker remove rules if the run dies, or cancels that.
func guardRemote(ctx context.Context, rules natRules, setup subject.Setup, on bool) error {
	if !setup.Lab.Remote() {
		return nil
	}
	guarded := rules.removal(setup)
	guarded.On = on
	_, err := rulesTask.On(ctx, setup.Lab.Balancer, guarded)
	return err
}
