// SPDX-License-Identifier: Apache-2.0

package probe

import (
	"cmp"
	"fmt"
	"slices"
	"strings"

	"github.com/jeoul/jeoul/internal/weigh/results"
)

// Usage is the CPU use of one part of a trial while the load ran.
type Usage struct {
	// Part is the part of the laboratory. A result cannot name the switch, but it shares the machine with the other
	// parts.
	Part results.Part
	// Cores is the CPU use of all hosts of the part together: 1 is one core that is always busy.
	Cores float64
	// Busiest is the use of the part's busiest thread, in cores, and BusiestName the name of that thread. A thread
	// cannot use more than one core, so at 1 it is the bottleneck, however many other threads idle.
	Busiest     float64
	BusiestName string
	// Allowed is the number of cores that the part can use at most (a proxy's threads); 0 if only the machine limits
	// it.
	Allowed float64
}

// PartSwitch is the laboratory's own switch.
const PartSwitch results.Part = "switch"

// PartHost is the balancer's host if load generators run there, too: it cannot be determined which of them is the
// bottleneck.
const PartHost results.Part = "the balancer's host"

// Thresholds of Saturated.
const (
	// fullThread is the share of a core from which on a thread counts as always busy: the rest goes to other work on
	// its core.
	fullThread = 0.95
	// idleMachine is the share of all cores that must have idled if the machine is not the bottleneck.
	idleMachine = 0.15
	// clearlyLargest is how many times the use of every other part a part must have used to count as the bottleneck of
	// a machine that all parts share.
	clearlyLargest = 1.25
)

// Saturated returns the part that limited a trial, and the figures that this follows from. On a machine of its own, a
// part is the bottleneck when it has no more CPU to use. Here all parts share one machine, so the rule is, in this
// order:
//
//  1. A part whose busiest thread used at least 95 % of a core, or that used at least 95 % of the cores it may use:
//     that part (the one closest to its limit, if there are several).
//  2. 15 % or more of the machine was idle: none, because each process with work could run.
//  3. The machine was full, and one part used at least 1.25 times as much of it as any other: that part.
//  4. Otherwise: unknown.
//
// If the rule finds the switch, the result is unknown, and the note says so: the switch is a part of the laboratory and
// is not measured. The same holds for PartHost.
func Saturated(parts []Usage, idle, cores float64) (results.Part, string) {
	figures := describe(parts, idle, cores)
	if full, reason := fullest(parts); full != nil {
		return known(full.Part), fmt.Sprintf("saturated: %s, for %s; %s", full.Part, reason, figures)
	}
	if cores <= 0 || len(parts) == 0 {
		return results.SaturatedUnknown, "saturated: unknown, for there are no CPU figures"
	}
	if idle >= idleMachine*cores {
		return results.SaturatedNone, fmt.Sprintf("saturated: none, for %.0f %% of the machine idled; %s",
			idle/cores*100, figures)
	}
	sorted := slices.SortedFunc(slices.Values(parts), func(a, b Usage) int { return cmp.Compare(b.Cores, a.Cores) })
	first := sorted[0]
	if len(sorted) == 1 || first.Cores >= clearlyLargest*sorted[1].Cores {
		return known(first.Part),
			fmt.Sprintf("saturated: %s, for the machine was full and it had the largest share; %s", first.Part, figures)
	}
	return results.SaturatedUnknown, fmt.Sprintf(
		"saturated: unknown, for the parts share a full machine and none had clearly the largest share; %s", figures)
}

// SaturatedMachines is Saturated for parts on several machines. The bottleneck is on the fullest machine, by the same
// rule; there is none if every machine has time to spare. A balancer may use up to allowed cores of its machine; 0
// means all.
func SaturatedMachines(machines []MachineParts, allowed float64) (results.Part, string) {
	part, why, least := results.SaturatedNone, "", 2.0
	var idle, cores float64
	var all []Usage
	for _, m := range machines {
		for i := range m.Parts {
			if m.Parts[i].Part == results.SaturatedBalancer {
				m.Parts[i].Allowed = allowed
			}
		}
		idle, cores, all = idle+m.Idle, cores+m.Cores, append(all, m.Parts...)
		if m.Cores <= 0 {
			continue
		}
		if on, reason := Saturated(m.Parts, m.Idle, m.Cores); on != results.SaturatedNone && m.Idle/m.Cores < least {
			part, why, least = on, reason, m.Idle/m.Cores
		}
	}
	if part == results.SaturatedNone {
		why = fmt.Sprintf("saturated: none, for every machine had time to spare; %s", describe(all, idle, cores))
	}
	return part, why
}

// fullest returns the part that is closest to its own limit (or furthest beyond) among those that reached it, and the
// reason in words.
func fullest(parts []Usage) (full *Usage, reason string) {
	most := 0.0
	for i, part := range parts {
		if part.Busiest >= fullThread && part.Busiest > most {
			most, full = part.Busiest, &parts[i]
			reason = fmt.Sprintf("its thread %s used %.2f of a core", part.BusiestName, part.Busiest)
		}
		if part.Allowed > 0 && part.Cores >= fullThread*part.Allowed && part.Cores/part.Allowed > most {
			most, full = part.Cores/part.Allowed, &parts[i]
			reason = fmt.Sprintf("it used %.2f of the %g cores it may use", part.Cores, part.Allowed)
		}
	}
	return full, reason
}

// known maps a part to one that a result may name: the switch and PartHost become unknown.
func known(part results.Part) results.Part {
	if part == PartSwitch || part == PartHost {
		return results.SaturatedUnknown
	}
	return part
}

// describe lists the figures, beginning with the part with the largest use.
func describe(parts []Usage, idle, cores float64) string {
	sorted := slices.SortedStableFunc(slices.Values(parts), func(a, b Usage) int {
		return cmp.Compare(b.Cores, a.Cores)
	})
	words := make([]string, 0, len(sorted)+1)
	for _, part := range sorted {
		words = append(words, fmt.Sprintf("%s %.2f", part.Part, part.Cores))
	}
	words = append(words, fmt.Sprintf("idle %.2f", idle))
	return fmt.Sprintf("cores used of %g: %s", cores, strings.Join(words, ", "))
}
