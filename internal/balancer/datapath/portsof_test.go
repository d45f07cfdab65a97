// SPDX-License-Identifier: Apache-2.0

package datapath

import (
	"errors"
	"fmt"
	"slices"
	"testing"

	"golang.org/x/sys/unix"

	"github.com/jeoul/jeoul/internal/balancer/datapath/attach"
	"github.com/jeoul/jeoul/internal/balancer/datapath/loader"
)

// TestPortsOf: a deleted interface in use is left out of a change, and one that could not be asked for fails it.
func TestPortsOf(t *testing.T) {
	used := []string{"eth0", "eth1"}
	gone, busy := fmt.Errorf("%w there", attach.ErrNoInterface), fmt.Errorf("asking: %w", unix.EMFILE)
	for name, test := range map[string]struct {
		names  []string
		errors map[string]error
		want   []string
		err    error
	}{
		"all present":   {names: used, want: used},
		"one deleted":   {names: used, errors: map[string]error{"eth0": gone}, want: used[1:]},
		"all deleted":   {names: used, errors: map[string]error{"eth0": gone, "eth1": gone}, want: used},
		"one not known": {names: used, errors: map[string]error{"eth1": busy}, err: unix.EMFILE},
		"one deleted, one not known": {names: used, errors: map[string]error{"eth0": gone, "eth1": busy},
			err: unix.EMFILE},
		"no such new one": {names: []string{"eth0", "eth7"}, errors: map[string]error{"eth7": gone},
			err: attach.ErrNoInterface},
	} {
		t.Run(name, func(t *testing.T) {
			find := func(names []string) (ports []attach.Port, err error) {
				for _, name := range names {
					if err := test.errors[name]; err != nil {
						return nil, err
					}
					ports = append(ports, attach.Port{Name: name})
				}
				return ports, nil
			}
			d := &Datapath{findPorts: find, options: Options{Interfaces: used},
				current: &loader.Programs{Ports: []attach.Port{{Name: "eth0"}, {Name: "eth1"}}}}
			ports, err := d.portsOf(test.names)
			if !errors.Is(err, test.err) || !slices.Equal(portNames(ports), test.want) {
				t.Errorf("%v, %v, want %v, %v", portNames(ports), err, test.want, test.err)
			}
		})
	}
}
