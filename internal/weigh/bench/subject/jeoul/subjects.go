// SPDX-License-Identifier: Apache-2.0

// Package jeoul has our own balancer as a subject, in each of its modes, alone or as several behind a router.
package jeoul

import (
	"github.com/jeoul/jeoul/internal/balancer/lb"
	"github.com/jeoul/jeoul/internal/weigh/bench/subject"
)

// Subjects are the subjects of this package, in the order of their presentation.
var Subjects = subjects()

func subjects() (all []subject.Subject) {
	for _, mode := range lb.PacketModes {
		all = append(all, jeoul{mode, lb.HookXDP}, jeoul{mode, lb.HookTC})
	}
	return append(all, newJeoulProxy())
}
