// SPDX-License-Identifier: Apache-2.0

package control

import (
	"errors"
	"slices"
)

// step is one change of what is there.
type step struct {
	do func() error
	// undo takes it back; nil where nothing can come after it that fails.
	undo func() error
}

// carryOut does steps in order. Where one fails, those before it are taken back, the last one
// first.
func carryOut(steps []step) error {
	for i, s := range steps {
		err := s.do()
		if err == nil {
			continue
		}
		for _, done := range slices.Backward(steps[:i]) {
			if done.undo != nil {
				err = errors.Join(err, done.undo())
			}
		}
		return err
	}
	return nil
}

// actuator makes a part of what is there as the desired state has it.
type actuator interface {
	// change says how to get from one desired state to another: bring is what the next one
	// needs before it is in force, beside what the one before needs, and retire what
	// can go once it is, which the last actuator retires first.
	change(before, next *view) (bring, retire []step)
}

// become puts another desired state in force, whole or not at all. What cannot be retired is
// logged, and taken back at the end with the rest.
func (c *Controller) become(next *view) error {
	before := c.view
	var bring, retire []step
	for _, a := range c.actuators {
		b, r := a.change(before, next)
		bring, retire = append(bring, b...), append(r, retire...)
	}
	if err := carryOut(bring); err != nil {
		return err
	}
	for _, s := range retire {
		if err := s.do(); err != nil {
			c.opt.Log.Warn(oneLine(err))
		}
	}
	return nil
}

// settings are those of the host: it forwards what the services need, and nothing else.
type settings struct{ c *Controller }

func (h settings) change(before, next *view) (bring, retire []step) {
	if before.layout == next.layout {
		return nil, nil
	}
	return []step{{
			do:   func() error { return h.c.forward(before, next) },
			undo: func() error { return h.c.forward(before) },
		}}, []step{{
			do: func() error { return h.c.forward(next) },
		}}
}

// plane is the data plane. It comes last of what is brought: what is before it may fail, and
// then it was not touched.
type plane struct{ c *Controller }

func (p plane) change(before, next *view) (bring, retire []step) {
	return []step{{do: func() error {
		next.hairpin = p.c.hairpins(next)
		next.state.Hairpin = next.hairpin.Hairpin
		next.state.Fresh = before.joining != "" && !p.c.opt.TakesOver && next.leavesAll()
		if !p.c.stale && next.sharesState(before) {
			p.c.show(next)
			return nil
		}
		return tooLarge(next.cfg, p.c.install(next))
	}}}, nil
}
