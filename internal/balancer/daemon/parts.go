// SPDX-License-Identifier: Apache-2.0

package daemon

import (
	"context"

	"github.com/jeoul/jeoul/internal/balancer/config"
	"github.com/jeoul/jeoul/internal/balancer/ops"
	"github.com/jeoul/jeoul/internal/balancer/sources"
)

// part is a piece of a running balancer beside its controller.
type part interface {
	// Prepare reads and checks all that the part needs of a configuration, and changes nothing. commit puts that in
	// force, and cannot fail. An error refuses the whole configuration: yamlfile.Problems.
	Prepare(cfg *config.Config) (commit func(), err error)
	// FillStatus adds the part to a status of the balancer. Lists of the status are not this part's to write into.
	FillStatus(to *ops.Status)
}

// reloadAll returns an Apply that has parts take part in apply's change: it prepares them in their order, once the
// configuration is read and before apply puts it in force, and commits them in that order after. If the configuration
// cannot be read, or a part or apply refuses it, no part is committed. So apply is the only step that can fail halfway,
// and undoes its own steps itself.
func reloadAll(apply sources.Apply, parts []part) sources.Apply {
	return func(ctx context.Context, load func() (*config.Config, error)) error {
		var commits []func()
		err := apply(ctx, func() (*config.Config, error) {
			cfg, err := load()
			if err != nil {
				return nil, err
			}
			commits, err = prepareAll(cfg, parts)
			return cfg, err
		})
		if err != nil {
			return err
		}
		for _, commit := range commits {
			commit()
		}
		return nil
	}
}

// prepareAll prepares parts in their order, up to the first one that refuses.
func prepareAll(cfg *config.Config, parts []part) ([]func(), error) {
	commits := make([]func(), 0, len(parts))
	for _, p := range parts {
		commit, err := p.Prepare(cfg)
		if err != nil {
			return nil, err
		}
		commits = append(commits, commit)
	}
	return commits, nil
}

// showAll wraps a source of statuses: it adds the states of all parts.
func showAll(status func() (ops.Status, error), parts []part) func() (ops.Status, error) {
	return func() (ops.Status, error) {
		s, err := status()
		if err != nil {
			return s, err
		}
		// Other callers read the same list meanwhile.
		s.Problems = s.Problems[:len(s.Problems):len(s.Problems)]
		for _, p := range parts {
			p.FillStatus(&s)
		}
		return s, nil
	}
}
