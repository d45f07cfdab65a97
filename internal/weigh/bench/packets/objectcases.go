// SPDX-License-Identifier: Apache-2.0

package packets

import (
	"slices"

	"github.com/jeoul/jeoul/internal/balancer/lb"
)

// cases returns the cases of a hook, and those of the object.
func (o Options) cases(hook lb.Hook) []benchCase {
	list := cases(hook, o.flowCounts)
	if o.Object == nil || o.Object.Setup.Hook != hook {
		return list
	}
	for i := range o.Object.Setup.Cases {
		c := &o.Object.Setup.Cases[i]
		for _, flows := range c.Flows {
			list = append(list, benchCase{subject: o.Object.Setup.Subject, hook: hook, flows: flows, frame: c.Frame(),
				prime: c.PrimeFrames(), protocol: c.Transport(), object: c})
		}
	}
	return list
}

// hooks returns the hooks to measure. With an object, that is the object's hook.
func (o Options) hooks() []lb.Hook {
	if o.Object == nil {
		return o.Hooks
	}
	return slices.DeleteFunc(slices.Clone(o.Hooks), func(h lb.Hook) bool { return h != o.Object.Setup.Hook })
}
