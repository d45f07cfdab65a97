// SPDX-License-Identifier: Apache-2.0

// Package subjects lists the balancers that can be measured.
package subjects

import (
	"context"
	"errors"
	"fmt"
	"slices"

	"github.com/jeoul/jeoul/internal/weigh/bench/probe"
	"github.com/jeoul/jeoul/internal/weigh/bench/subject"
	"github.com/jeoul/jeoul/internal/weigh/bench/subject/direct"
	"github.com/jeoul/jeoul/internal/weigh/bench/subject/ipvs"
	"github.com/jeoul/jeoul/internal/weigh/bench/subject/jeoul"
	"github.com/jeoul/jeoul/internal/weigh/bench/subject/loxilb"
	"github.com/jeoul/jeoul/internal/weigh/bench/subject/nat"
	"github.com/jeoul/jeoul/internal/weigh/bench/subject/proxy"
	"github.com/jeoul/jeoul/internal/weigh/lab"
)

// All returns every subject, in the order of their presentation. A new family is added to this list.
func All() []subject.Subject {
	return slices.Concat(direct.Subjects, proxy.Subjects, nat.Subjects, ipvs.Subjects, loxilb.Subjects, jeoul.Subjects)
}

// Names returns the names of All.
func Names() []string {
	var names []string
	for _, s := range All() {
		names = append(names, s.Name())
	}
	return names
}

// Find returns the subject with the given name, and false if there is none.
func Find(name string) (subject.Subject, bool) {
	all := All()
	i := slices.IndexFunc(all, func(s subject.Subject) bool { return s.Name() == name })
	if i < 0 {
		return nil, false
	}
	return all[i], true
}

// RemoteVersions has the versions of a subject's programs on a host, or the reason why the subject cannot run there.
type RemoteVersions struct {
	Versions map[string]string
	Missing  string
}

var versionsTask = lab.NewTask("subject-versions",
	func(ctx context.Context, _ *lab.Host, name string) (RemoteVersions, error) {
		s, ok := Find(name)
		if !ok {
			return RemoteVersions{}, fmt.Errorf("there is no subject %s", name)
		}
		versions, err := s.Versions(ctx)
		if errors.Is(err, probe.ErrNotInstalled) {
			return RemoteVersions{Versions: versions, Missing: err.Error()}, nil
		}
		return RemoteVersions{Versions: versions}, err
	})

// VersionsOn asks a host for the versions of a subject's programs.
func VersionsOn(ctx context.Context, host *lab.Host, s subject.Subject) (RemoteVersions, error) {
	return versionsTask.On(ctx, host, s.Name())
}
