// SPDX-License-Identifier: Apache-2.0

package packets

import (
	"slices"

	"github.com/jeoul/jeoul/internal/balancer/lb"
)

// cases are the cases of a hook, and the object's.
func (o Options) cases(hook lb.Hook) []measured {
	list := cases(hook, o.flowCounts)
	if o.Object == nil || o.Object.Setup.Hook != hook {
		return list
	}
	for i := range o.Object.Setup.Cases {
		c := &o.Object.Setup.Cases[i]
		for _, flows := range c.Flows {
			list = append(list, measured{subject: o.Object.Setup.Subject, hook: hook, flows: flows, frame: c.Frame(),
				prime: c.PrimeFrames(), protocol: c.Transport(), object: c})
		}
	}
	return list
}

// hooks are the hooks that are measured: beside an object, its own.
func (o Options) hooks() []lb.Hook {
	if o.Object == nil {
		return o.Hooks
	}
	return slices.DeleteFunc(slices.Clone(o.Hooks), func(h lb.Hook) bool { return h != o.Object.Setup.Hook })
}
