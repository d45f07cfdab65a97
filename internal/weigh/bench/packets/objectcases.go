// SPDX-License-Identifier: Apache-2.0

package packets

import (
	"fmt"
	"slices"

	"github.com/jeoul/jeoul/internal/balancer/lb"
	"github.com/jeoul/jeoul/internal/weigh/bench/harness"
	"github.com/jeoul/jeoul/internal/weigh/bench/packets/object"
)

// Object is a subject that is not ours: an object of eBPF, and how it is set up.
type Object struct {
	File  string
	Setup *object.Setup
}

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

// load loads the object, for the rig's one round.
func (r *rig) load(o *Object) (err error) {
	if o == nil || o.Setup.Hook != r.hook {
		return nil
	}
	r.object, err = o.Setup.Load(o.File)
	return err
}

// measureObject runs a case of the object once. It fails unless the program's return code was that of the setup, for a
// packet of the stream before, and counted each as it says: a figure for packets that were dropped would be worth
// nothing.
func (r *rig) measureObject(m measured, packets uint32) (float64, error) {
	stream := harness.Stream{Frame: m.frame, Count: m.flows}
	if err := r.prime(m); err != nil {
		return 0, err
	}
	warm := max(min(m.flows, packets/4), 1)
	if err := r.harness.SendAtLeast(r.object.Program(), stream, warm); err != nil {
		return 0, err
	}
	returned, err := r.harness.Returned(r.object.Program(), stream)
	if err != nil {
		return 0, err
	}
	if returned != m.object.Returns {
		return 0, fmt.Errorf("the program returned %d for a packet of case %s instead of %d: %w", returned,
			m.object.Name, m.object.Returns, object.ErrOtherwise)
	}
	before, err := r.object.Counts()
	if err != nil {
		return 0, err
	}
	ns, err := r.harness.Send(r.object.Program(), stream, packets)
	if err != nil {
		return 0, err
	}
	after, err := r.object.Counts()
	if err != nil {
		return 0, err
	}
	return ns, r.object.Check(before, after, uint64(packets))
}

// hooks are the hooks that are measured: beside an object, its own.
func (o Options) hooks() []lb.Hook {
	if o.Object == nil {
		return o.Hooks
	}
	return slices.DeleteFunc(slices.Clone(o.Hooks), func(h lb.Hook) bool { return h != o.Object.Setup.Hook })
}
