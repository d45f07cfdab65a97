// SPDX-License-Identifier: Apache-2.0

package subject

import (
	"context"
	"errors"
	"fmt"
	"slices"

	"github.com/jeoul/jeoul/internal/balancer/lb"
	"github.com/jeoul/jeoul/internal/weigh/bench/probe"
	"github.com/jeoul/jeoul/internal/weigh/lab"
)

// All returns every subject, in the order in which a person should see them.
func All() []Subject {
	all := []Subject{
		direct{}, routed{}, bare{lb.HookXDP}, bare{lb.HookTC}, haproxyHTTP{}, haproxyTCP{}, nginxHTTP{}, nginxStream{},
		envoy{}, dockerProxy{},
		iptablesNth{}, nftables{}, ipvs{ipvsDirect}, ipvs{ipvsMasquerade}, ipvs{ipvsTunnel},
		keepalived{ipvsDirect}, keepalived{ipvsMasquerade}, keepalived{ipvsTunnel},
		loxilb{},
	}
	for _, mode := range lb.PacketModes {
		all = append(all, jeoul{mode, lb.HookXDP}, jeoul{mode, lb.HookTC})
	}
	return append(all, newJeoulProxy())
}

// Names returns the names of All.
func Names() []string {
	var names []string
	for _, s := range All() {
		names = append(names, s.Name())
	}
	return names
}

// Find returns the subject with the name, and false if there is none.
func Find(name string) (Subject, bool) {
	all := All()
	i := slices.IndexFunc(all, func(s Subject) bool { return s.Name() == name })
	if i < 0 {
		return nil, false
	}
	return all[i], true
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
