// SPDX-License-Identifier: Apache-2.0

package load

import (
	"encoding/json"
	"fmt"
)

// remoteKinds has the kinds that a worker on another machine can run, by name. Each function makes a kind from its
// settings.
var remoteKinds = map[string]func(settings []byte) (Kind, error){}

// Register registers kinds by name, so that workers on other machines can run them. Their exported fields are their
// settings, which are sent there as JSON. A package's init calls Register. It panics if a name is taken.
func Register[K Kind](kinds ...K) {
	for _, kind := range kinds {
		if remoteKinds[kind.Name()] != nil {
			panic("two kinds of load are called " + kind.Name())
		}
		remoteKinds[kind.Name()] = func(settings []byte) (Kind, error) {
			made := kind
			if err := json.Unmarshal(settings, &made); err != nil {
				return nil, fmt.Errorf("read the settings of %s: %w", kind.Name(), err)
			}
			return made, nil
		}
	}
}

func init() {
	Register(AB{})
	Register(Wrk{})
	Register(IPerf3{})
	Register(DNSPerf{})
}

// kindOf returns a worker's kind with a name and settings.
func kindOf(name string, settings []byte) (Kind, error) {
	of, ok := remoteKinds[name]
	if !ok {
		return nil, fmt.Errorf("there is no load %s that could be put on from another machine", name)
	}
	return of(settings)
}
